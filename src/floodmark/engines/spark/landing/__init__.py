"""Landing with Spark: units are parsed and stamped in workers, the driver decides what a commit holds."""
