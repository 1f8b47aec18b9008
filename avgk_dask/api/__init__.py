"""The public functions, from whatever holds the scores to a result."""
