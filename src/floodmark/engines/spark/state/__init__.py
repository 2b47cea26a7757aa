"""State of a stream in Spark: its checkpoint, the processor that holds it, its canonical form in a savepoint."""
