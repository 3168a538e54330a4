"""Models of measured figures, independent of how these were measured."""
