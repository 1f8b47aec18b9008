"""Locations of stores: paths, URLs, object stores, and how they are shown without credentials."""
