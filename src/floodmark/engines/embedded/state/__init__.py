"""State of streams on the embedded engine: files that are written once and linked into savepoints."""
