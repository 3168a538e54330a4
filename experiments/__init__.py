"""Experiments of the papers, repeated on this machine: one module, one command, one figure each."""
