"""From what users pass to a source."""
