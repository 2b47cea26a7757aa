"""Patterns: a pattern compiled to an automaton, the rows of a key matched by it, and values of expressions over a match."""
