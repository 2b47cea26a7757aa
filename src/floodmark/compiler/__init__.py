"""Descriptions of an operator's graph for people. Pure."""
