"""Exact numbers: sums that no order can change, the units of scores, budgets as fractions."""
