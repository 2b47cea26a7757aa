"""What has happened: read from the tables' own logs, without a JVM."""
