"""Frozen, mergeable states: what a task sends on instead of scores."""
