"""What is kept on disk, as types."""
