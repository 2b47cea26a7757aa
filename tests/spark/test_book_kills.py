"""The books' streams on Spark, through kills: sums, positions, patterns, models, histories and outputs go on together, and from a savepoint again."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import count
from typing import Any

import book_process
import forked
import pytest
from book_process import others, together
from borrowed import lend, take_back
from pyspark.sql import SparkSession

from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.core.time import from_ms
from floodmark.engines.spark.bounded.run import run_bounded
from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import ROW
from floodmark.testing.lakes import land, outputs
from floodmark.testing.log import Log

Numbers = list[tuple[str, int]]
BEFORE: dict[str, Numbers] = {
    "left": [
        *[("b", 2), ("b", 3), ("c", 1)],
        *[("odd", 1), ("even", 2), ("odd", 3), ("even", 4), ("odd", 5)],
        *[("odd of two", 1), ("even of two", 2), ("odd of two", 3)],
    ],
    "right": [("odd of two", 1), ("even of two", 2), ("odd of two", 3), ("even of two", 4)],
}
"""Before the barrier: three rows of sums, five of one source, three and four of two."""
BEHIND: dict[str, Numbers] = {
    "left": [*[("a", 2), ("a", 2), ("c", 2)], *[("even", 6), ("odd", 7)], ("odd of two", 5)],
    "right": [("even of two", 6)],
}
POINTS = ("micro_batch.after_side", "micro_batch.after_main")
"""The side output has the rows of a micro-batch and the output does not; both have them, and Spark does not know."""


def numbers() -> tuple[dict[str, Numbers], dict[str, Numbers]]:
    """What arrives before and behind the barrier, with the rows of three keys whose history is kept beside it."""
    rng = random.Random(4)
    some = [(rng.choice(["x", "y", "z"]), rng.randrange(100)) for _ in range(90)]
    return BEFORE | {"left": [*some[:40], *BEFORE["left"]]}, BEHIND | {"left": [*BEHIND["left"], *some[40:]]}


def logs() -> tuple[dict[str, Log], dict[str, int]]:
    """The ended log of each source, and the entry at which the barrier is."""
    before, behind = numbers()
    found, cuts = {}, {}
    for name in ("left", "right"):
        log = found[name] = Log(together.inputs[0].schema)
        for time, (key, value) in zip(count(), [*before[name], *behind[name]], strict=False):
            log.row({"at": from_ms(time), "key": key, "value": value}, time)
        log.end()
        cuts[name] = len(before[name])
    return found, cuts


def remembered(rows: Numbers) -> Iterator[tuple[Any, ...]]:
    """(key, row, sum, rises, mean, history) from all rows so far, each time anew."""
    mine = defaultdict[str, list[int]](list)
    for key, value in rows:
        values = mine[key]
        values.append(value)
        text = "".join("l" if v < 30 else "h" if v > 70 else "" for v in values)
        rises = sum(text[: n + 1].endswith("lh") for n in range(len(text)))
        yield key, len(values), sum(values), rises, round(sum(values) / len(values), 9), tuple(values[-5:])


class Books:
    """The stream, and what readers see of it."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self.spark, self.lake = spark, lake

    def run(self, code: Operator = together) -> None:
        run_unbounded(self.spark, code, self.lake, until_caught_up=True)

    def kill(self, point: str) -> None:
        """Run it in a process that kills itself at a point."""
        command = [sys.executable, book_process.__file__, self.lake.root, together.name, "spark"]
        done = forked.run(command, env={**os.environ, crash.VARIABLE: point, **lend(self.spark)})
        take_back(self.spark)
        assert done.returncode == -signal.SIGKILL, done.stderr

    def seen(self, lake: Lake | None = None, code: Operator = together) -> Counter[tuple[Any, ...]]:
        """The rows of the output: but of keys with rows of two sources, whose order nobody has recorded, only number and sum of the last."""
        table = outputs(lake or self.lake, code)[""]
        rows = Counter[tuple[Any, ...]]()
        last = defaultdict[str, tuple[int, int]](tuple)
        for row in (row for row in table.to_pylist() if row["_kind"] == ROW):
            known = row["row"], row["total"]
            if row["key"].endswith("of two"):
                last[row["key"]] = max(known, last[row["key"]], key=lambda n: n[:1])
            else:
                rows[row["key"], *known, row["rises"], round(row["mean"], 9), tuple(row["history"])] += 1
        return rows + Counter((key, *known) for key, known in last.items())

    def thirds(self) -> Counter[tuple[Any, ...]]:
        """The rows of the side output."""
        table = outputs(self.lake, together)["thirds"]
        return Counter((row["key"], row["row"]) for row in table.to_pylist() if row["_kind"] == ROW)


def wanted(*parts: dict[str, Numbers]) -> Counter[tuple[Any, ...]]:
    """What must be seen of some parts of the input."""
    left, both = (
        [row for part in parts for name in names for row in part[name]] for names in (("left",), ("left", "right"))
    )
    last = {key: (row, total) for key, row, total, *_ in remembered(both) if key.endswith("of two")}
    return Counter(known for known in remembered(left) if not known[0].endswith("of two")) + Counter(
        (key, *known) for key, known in last.items()
    )


def sums(seen: Counter[tuple[Any, ...]], *keys: str) -> dict[str, int]:
    """The last sum of each key."""
    last = {key: (row, total) for key, row, total, *_ in sorted(seen)}
    return {key: last[key][1] for key in keys if key in last}


@pytest.mark.soak
@pytest.mark.feature("K4", "K5", "K13", "K14", "D1", "F1", "F2", "F8", "F14", "V2", "V10", "P1", "Y9")
def test_sums_positions_patterns_and_histories_go_on_after_kills_and_from_a_savepoint(
    spark: SparkSession, lake: Lake
) -> None:
    whole, cuts = logs()
    before, behind = numbers()
    books, all_of_it = Books(spark, lake), wanted(before, behind)
    for name, log in whole.items():
        land(lake, together, log, 0, cuts[name], name=name)
    books.run()
    assert books.seen() == wanted(before)
    assert sums(books.seen(), "a", "b", "c") == {"b": 5, "c": 1}
    assert sums(books.seen(), "odd", "even") == {"odd": 9, "even": 6}, "at offset five"
    assert sums(books.seen(), "odd of two", "even of two") == {"odd of two": 8, "even of two": 8}, "at three and four"
    savepoint = savepoints.create(together.name, lake)
    for name, log in whole.items():
        land(lake, together, log, cuts[name], name=name)
    books.kill(POINTS[0])
    assert books.seen() == wanted(before), (
        "what is not committed is not seen, and what is behind the barrier is read again"
    )
    books.kill(POINTS[1])
    assert books.seen() == all_of_it
    books.run()
    assert books.seen() == all_of_it, "each row once"
    assert sums(books.seen(), "a", "b", "c") == {"a": 4, "b": 5, "c": 3}
    assert sums(books.seen(), "odd", "even") == {"odd": 16, "even": 12}
    assert sums(books.seen(), "odd of two", "even of two") == {"odd of two": 13, "even of two": 14}
    aside = Counter[tuple[Any, ...]]()
    mine = Counter[str]()
    for key, value in [row for part in (before, behind) for row in part["left"]]:
        mine[key] += 1
        aside[key, mine[key]] += value % 3 == 0 and not key.endswith("of two")
    assert +aside == Counter({key: n for key, n in books.thirds().items() if not key[0].endswith("of two")})

    roll_back(lake, savepoint)
    assert books.seen() == wanted(before), "as at the barrier"
    books.run()
    assert books.seen() == all_of_it, "a savepoint restores as the checkpoint of that moment did"

    bounded = Lake(f"{lake.root}-bounded", logs=lake.root)
    run_bounded(spark, together, bounded)
    assert books.seen(bounded) == all_of_it

    with pytest.raises(LifecycleError, match="LIFECYCLE-030"):
        savepoints.create(others.name, lake)
    books.run(others)
    assert books.seen(code=others) == all_of_it, "the same code under another name begins with nothing"
    assert books.seen() == all_of_it, "and takes nothing away"
