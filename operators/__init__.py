"""Operator definitions and their contracts: pure, no Spark, no Dagster."""
