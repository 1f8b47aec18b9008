"""Results: the registry of variables, and how they are shown."""
