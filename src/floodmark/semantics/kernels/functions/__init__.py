"""Kernels of floodmark's own process functions, duplicates, patterns and regular joins, and of rolling aggregates over retractions."""
