"""Patterns over the rows of a key: stages, conditions, measures, and what happens after a match."""
