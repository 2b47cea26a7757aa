"""The pattern of ``patterns.py`` as MATCH_RECOGNIZE of Flink SQL, which is Flink CEP: a program of the environment of PyFlink.

    python flink_patterns.py FILE FOLDER batch | streaming

Flink's clause takes rows one behind the other: rows between the steps are variables of their own, and each small amount begins a match.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version

CLAUSE = """
SELECT back_at FROM swipes MATCH_RECOGNIZE (
  PARTITION BY card ORDER BY ts MEASURES C.at_ms AS back_at
  AFTER MATCH SKIP TO NEXT ROW
  PATTERN (A X* B Y* C) WITHIN INTERVAL '1' HOUR
  DEFINE A AS amount < 1, X AS amount <= 500, B AS amount > 500,
    Y AS amount >= 0 OR amount <= -10, C AS amount < 0 AND amount > -10
)"""


def main(rows: str, answer: str, mode: str) -> None:
    """Read the rows, a CSV file, and write the matches into a folder."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    settings = EnvironmentSettings.in_batch_mode() if mode == "batch" else EnvironmentSettings.in_streaming_mode()
    tables = TableEnvironment.create(settings)
    tables.get_config().set("parallelism.default", "2")
    tables.get_config().set("table.local-time-zone", "UTC")
    tables.execute_sql(
        "CREATE TABLE swipes (at_ms BIGINT, card BIGINT, amount DOUBLE, ts AS TO_TIMESTAMP_LTZ(at_ms, 3), WATERMARK FOR ts AS ts) "
        f"WITH ('connector' = 'filesystem', 'path' = 'file://{rows}', 'format' = 'csv')"
    )
    tables.execute_sql(
        f"CREATE TABLE answer (back_at BIGINT) WITH ('connector' = 'filesystem', 'path' = 'file://{answer}', 'format' = 'csv')"
    )
    tables.execute_sql(f"INSERT INTO answer {CLAUSE}").wait()
    print(json.dumps({"version": version("apache-flink")}))


if __name__ == "__main__":
    main(*sys.argv[1:])
