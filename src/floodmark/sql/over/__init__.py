"""OVER: results of each row over rows of its key."""
