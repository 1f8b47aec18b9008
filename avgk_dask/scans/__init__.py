"""What one task does with a band: from its slabs to a state."""
