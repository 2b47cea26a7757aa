"""A test that fails for a process of its own says what the process has failed with, not the query plan behind it."""

from __future__ import annotations

from processes import failure

PLAN = "".join(f"   +- ~Project [at#{number}, key#{number}]\n" for number in range(400))


def test_exceptions_are_shown_and_not_plans() -> None:
    said = f"""Traceback (most recent call last):
  File "run.py", line 5, in start
pyspark.errors.StreamingQueryException: [STREAM_FAILED] Query terminated: Object ID unknown
=== Streaming Query ===
{PLAN}
Caused by: py4j.Py4JException: Object ID unknown
\tat py4j.Protocol.getReturnValue(Protocol.java:476)

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "run.py", line 9, in start
floodmark.core.errors.ExecutionError: EXECUTION-004 {"x" * 5_000}
"""
    last, cause, first = failure(said).splitlines()
    assert last.startswith("floodmark.core.errors.ExecutionError: EXECUTION-004 xx")
    assert len(last) == 1_500
    assert cause == "Caused by: py4j.Py4JException: Object ID unknown"
    assert first.endswith("Query terminated: Object ID unknown")


def test_where_there_is_none_the_end_is_shown() -> None:
    assert failure(f"{PLAN}Killed\n").endswith("Killed\n")
