"""Run directories on disk, and the file formats of the papers' authors."""
