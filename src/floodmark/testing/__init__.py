"""For users' tests: operators fed by hand, rows as tables, every engine and mode, transcripts. Public, and used by floodmark's own tests.

``floodmark.testing.strategies`` has Hypothesis strategies; it needs ``hypothesis``.
"""

from floodmark.testing.case import Case
from floodmark.testing.rows import table
from floodmark.testing.runs import IN_MEMORY, RUNS, Run

__all__ = ["IN_MEMORY", "RUNS", "Case", "Run", "table"]
