"""Calibration of the models: what each promised, and what came."""
