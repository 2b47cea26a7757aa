"""Graphs and iterations over bounded tables: supersteps with a barrier between them, which a killed run resumes."""
