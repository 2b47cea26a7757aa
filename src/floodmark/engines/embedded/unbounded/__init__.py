"""Unbounded runs of the embedded engine."""
