"""What runs a compiled operator: Spark, or in this process without a JVM."""
