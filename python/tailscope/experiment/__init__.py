"""What is measured: plans, and how they are carried out."""
