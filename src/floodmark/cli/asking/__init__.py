"""A statement over the lake's tables, answered at once, and its rows on stdout."""
