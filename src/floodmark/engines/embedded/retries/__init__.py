"""Queries that have failed: which rows and expressions are the reason, in Spark's words."""
