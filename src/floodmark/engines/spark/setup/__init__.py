"""What a machine needs before Spark runs on it: Java, the jars, an archive of classes that makes it start faster."""
