"""State of a key group behind one port: chunks, buckets of keys, and their index."""
