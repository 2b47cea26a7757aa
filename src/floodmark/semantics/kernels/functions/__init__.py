"""Kernels of floodmark's own process functions: duplicates and patterns."""
