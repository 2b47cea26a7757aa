"""Logs of sources: what has landed, which rows were set aside, which lie far from all others."""
