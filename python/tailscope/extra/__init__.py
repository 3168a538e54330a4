"""What is built on the core and can be removed, a folder each."""
