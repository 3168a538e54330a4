"""Many pairs of captures, in this process or on the workers of a Dask scheduler."""
