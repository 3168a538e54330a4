"""Models: what follows from figures that were measured; none knows how they were measured."""
