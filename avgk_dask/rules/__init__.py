"""Which scores are in a set: rules, lazy sets, and windows of sets to be written."""
