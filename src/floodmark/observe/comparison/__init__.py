"""Comparison of two versions of a table: its sides, the pairing of rows, and the profiles of columns."""
