"""Stores as they are written: drafts under a lease, journals, parts and joins."""
