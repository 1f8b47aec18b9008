"""A score matrix as bands of rows: stored, the blocks of a Dask array, truncated, transformed."""
