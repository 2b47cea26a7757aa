"""Spark Connect: a server that somebody else runs as an engine, with the client alone."""
