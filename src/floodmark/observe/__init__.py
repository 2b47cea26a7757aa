"""Reports on sources and operators, read from their tables and the tables' logs."""
