"""Deliveries: the changes of an output's log, and the sinks that take them. No Spark, and no engine."""
