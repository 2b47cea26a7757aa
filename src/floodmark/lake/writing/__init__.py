"""Commits to a table: who may write, what a commit puts in place of what, checkpoints beside it."""
