"""Forgetting: rows of a key are removed from logs and quarantines, with what files, statistics and savepoints still have of them."""
