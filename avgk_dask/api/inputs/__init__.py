"""User input as sources."""
