"""Results of others as run directories: what they hold, what follows from it, and what does not."""
