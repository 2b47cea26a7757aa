"""Actions on supervised streams: one at a time on a stream, stopped, switched, started and verified."""
