"""Spark: sessions, tables, and the two runners."""
