"""Experiments: plans of measurements, and how they are carried out."""
