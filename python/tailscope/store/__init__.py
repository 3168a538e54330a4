"""What is kept on disk: run directories, and the file formats of the papers' authors."""
