"""For users' tests: operators fed by hand, transcripts. Public, and used by floodmark's own tests."""

from floodmark.testing.case import Case

__all__ = ["Case"]
