"""The command line: one verb, one meaning. Nothing here imports Spark before a verb needs it."""
