"""What can be measured on this machine, how far, and which line adds what is missing."""
