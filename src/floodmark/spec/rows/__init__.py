"""What a row is and where it comes from: contracts, expectations, sources."""
