"""The graph of an operator: streams, their steps, joins, and the operator itself."""
