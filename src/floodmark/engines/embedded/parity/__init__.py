"""Parity of Sail with Spark: SQL that Sail computes as Spark does, and the refusal of every other expression."""
