"""Dask: bands to tallies, a tree of merges, and the memory a task may take. Nothing else builds graphs."""
