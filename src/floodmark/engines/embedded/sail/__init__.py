"""Sail: its server, the process of it, sessions, and frames prepared for them."""
