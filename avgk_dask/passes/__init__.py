"""Reads of all bands: the tasks, their tree of merges, the memory they take, their progress."""
