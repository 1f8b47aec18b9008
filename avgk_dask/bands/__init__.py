"""What a task does with a band: labels, candidates, whole rows, and the pass that says what is wanted."""
