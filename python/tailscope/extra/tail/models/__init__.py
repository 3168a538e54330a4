"""The tail beyond the measurement: peaks over threshold, of bursts (containers2024 section 6)."""
