"""Engines run a compiled operator: Spark, or the embedded engine without a JVM."""
