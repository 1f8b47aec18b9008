"""Thresholds in one read, and whatever runs it: search, graph, checkpoints, memory, progress, clusters."""
