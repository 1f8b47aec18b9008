"""Frozen, mergeable states: what a task sends on instead of scores.

Each has ``empty``-like beginnings, a ``from_...`` that reads one band, and a ``merge`` that is
associative and commutative, so that no order of completion can change a bit.
"""
