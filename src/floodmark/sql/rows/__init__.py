"""Rows that are made of other rows: several of one, and matches of patterns."""
