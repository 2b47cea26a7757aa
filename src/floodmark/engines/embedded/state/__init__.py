"""State of streams of the embedded engine: files that are written once and linked into savepoints."""
