"""Values as bytes, in an order, and in columns: the same in every process and every Python."""
