"""Readers: what each connector lists as units, and how it opens one."""
