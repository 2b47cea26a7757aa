"""The fast path of bounded runs: windows and joins as plans of the engine, for the cases in which these have the rows of the kernels."""
