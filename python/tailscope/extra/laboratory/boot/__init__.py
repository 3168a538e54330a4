"""Reboots of a laboratory's machine into the kernels of an experiment."""
