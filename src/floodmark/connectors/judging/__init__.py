"""Records judged against the contract of their source."""
