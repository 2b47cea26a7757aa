"""Pure: an operator's graph, told in words."""
