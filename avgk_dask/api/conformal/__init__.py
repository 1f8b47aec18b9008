"""Sets with coverage."""
