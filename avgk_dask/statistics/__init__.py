"""One module for each thing that a read can find: its state, its scan, its search."""
