"""Results of an operator over event time: what is computed, what is left to compute, in which tables."""
