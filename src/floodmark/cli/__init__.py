"""The command line: one verb, one meaning. No module imports Spark before a verb needs Spark."""
