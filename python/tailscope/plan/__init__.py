"""The fields of a run, each declared once."""
