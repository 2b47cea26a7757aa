"""The local engine: operators in one process, without a JVM, for tests and examples. DuckDB computes expressions, the kernels the rest."""
