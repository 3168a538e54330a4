"""What keeps a CPU from its work, by name, and which packets waited for it."""
