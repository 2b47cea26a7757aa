"""Unbounded runs: an operator as a stream, micro-batch by micro-batch."""
