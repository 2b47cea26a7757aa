"""Messages: bytes decoded by a schema, and changes of a database in Debezium's envelope."""
