"""Exact selection: from tallies to thresholds. Pure functions of small arrays; reads nothing."""
