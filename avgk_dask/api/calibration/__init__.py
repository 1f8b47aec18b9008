"""Calibrators."""
