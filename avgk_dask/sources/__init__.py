"""A score matrix as bands of rows: stored, or the blocks of a Dask array."""
