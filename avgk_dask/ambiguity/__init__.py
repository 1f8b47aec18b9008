"""Ambiguity: what the ranked scores tell about when adapting pays."""
