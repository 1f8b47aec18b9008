"""Evaluation from the batches of a loop."""
