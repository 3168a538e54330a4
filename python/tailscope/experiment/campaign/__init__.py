"""An experiment of many runs: its file, its matrix, its progress."""
