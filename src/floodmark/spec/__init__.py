"""What authors write: frozen values, no Spark, no Dagster, no disk, no clock."""
