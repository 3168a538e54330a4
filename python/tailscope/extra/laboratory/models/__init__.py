"""Models of clocks: numbers in, numbers out."""
