"""Does it meet its service level, and what to choose instead."""
