"""Formats of files: texts, documents and columns as records."""
