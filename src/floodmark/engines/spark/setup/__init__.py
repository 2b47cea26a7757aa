"""Setup of a machine for Spark: Java, the jars, an archive of classes for a faster start."""
