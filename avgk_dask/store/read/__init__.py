"""Stores as they are read: opened, listed, checked, decoded."""
