"""Pure searches: from states to thresholds, least risks and tie weights. They read nothing."""
