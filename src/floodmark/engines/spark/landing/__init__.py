"""Landing with Spark: workers parse and stamp units, the driver decides which units a commit has."""
