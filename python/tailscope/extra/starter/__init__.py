"""The files with which a gate for the latency of a program of yours begins."""
