"""Bounded runs: an operator over an interval of event time."""
