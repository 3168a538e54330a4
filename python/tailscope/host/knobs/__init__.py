"""What can be tuned: one object a knob, grouped by subject; `catalogue` has them all."""
