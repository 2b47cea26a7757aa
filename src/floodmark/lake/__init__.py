"""The lake: Delta tables and what is kept beside them. No JVM, no engine."""
