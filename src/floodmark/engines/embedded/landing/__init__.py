"""Landing on the embedded engine: in this process, without Java."""
