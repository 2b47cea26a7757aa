"""Joins of a statement: with bounded state, of all rows, and subqueries in WHERE that are joins."""
