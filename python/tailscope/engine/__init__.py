"""The typed face of the engine."""
