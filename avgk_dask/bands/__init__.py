"""What a task does with a band: the pass, its labels, the candidates among the scores, and whole rows."""
