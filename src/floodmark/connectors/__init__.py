"""Connectors: what is pending at a source, and its rows, checked against the contract. No Spark in here."""
