"""For users' tests: operators fed by hand, transcripts, generated disorder. Public, and used by floodmark's own tests."""
