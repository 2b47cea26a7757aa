"""Windows, their triggers and evictors, aggregates, and asset partitions."""
