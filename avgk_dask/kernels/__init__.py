"""Loops over arrays: order keys, listed scores, ranks, counts and exponentials, compiled for large matrices."""
