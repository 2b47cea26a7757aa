"""Upkeep of a lake: files, entries and savepoints that nothing needs any more are removed."""
