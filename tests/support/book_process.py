"""Streams of the books and of ``examples/rules`` in a process of their own, which a test may kill: book_process.py LAKE OPERATOR ENGINE."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from example_workspaces import example

import floodmark as fm
from floodmark.control.processes import engine as engines
from floodmark.lake.folder.paths import Lake
from floodmark.spec.graph.operator import Operator
from floodmark.spec.workspace import Engine, Settings


class Number(fm.Contract):
    """A number of a key."""

    at: fm.EventTime
    key: str
    value: int


class Total(fm.Contract):
    """A sum so far."""

    total: int


class Memory(fm.Contract):
    """What is known of a key after a row: of each kind of state something."""

    row: int
    rises: int
    mean: float
    history: list[int]


class Remembered(Memory):
    """The same, and the sum."""

    total: int


class Aside(fm.Contract):
    """A number of a row."""

    row: int


class RunningSum(fm.ProcessFunction):
    """A sum per key: Flink's ``mapWithState``."""

    total = fm.ValueState(int)

    def on_element(self, row: Mapping[str, Any], ctx: fm.Context) -> Iterator[Mapping[str, Any]]:
        """The sum with the row."""
        self.total.update(self.total.get(0) + row["value"])
        yield {"total": self.total.get()}


class Remembering(fm.ProcessFunction):
    """A pattern that is half matched, a model that learns, and a history."""

    low = fm.ValueState(int)
    rises = fm.ValueState(int)
    seen = fm.ValueState(int)
    mean = fm.ValueState(float)
    last = fm.ListState(int)

    def on_element(self, row: Mapping[str, Any], ctx: fm.Context) -> Iterator[Mapping[str, Any]]:
        """Below 30 and then, with anything between, above 70 is a rise; the mean is learned one row after the other; five rows are kept."""
        value = row["value"]
        if value < 30:
            self.low.update(value)
        elif value > 70 and self.low.exists():
            self.low.clear()
            self.rises.update(self.rises.get(0) + 1)
        self.seen.update(self.seen.get(0) + 1)
        self.mean.update(self.mean.get(0.0) + (value - self.mean.get(0.0)) / self.seen.get())
        self.last.update([*self.last.get(), value][-5:])
        if value % 3 == 0:
            ctx.output("thirds", {"row": self.seen.get()})
        yield {
            "row": self.seen.get(),
            "rises": self.rises.get(0),
            "mean": self.mean.get(),
            "history": list(self.last.get()),
        }


class Summing(Remembering):
    """The same, and the sum."""

    total = fm.ValueState(int)

    def on_element(self, row: Mapping[str, Any], ctx: fm.Context) -> Iterator[Mapping[str, Any]]:
        """The sum with the row, and what is known."""
        self.total.update(self.total.get(0) + row["value"])
        for known in super().on_element(row, ctx):
            yield {**known, "total": self.total.get()}


PARITY = "CASE WHEN value % 2 = 1 THEN 'odd' ELSE 'even' END"


@fm.operator
def running_sums(numbers: fm.Stream[Number]) -> fm.Stream:
    """A sum per key."""
    return numbers.key_by("key").process(RunningSum(), schema=Total)


@fm.operator
def parity_of_one(numbers: fm.Stream[Number]) -> fm.Stream:
    """Odd and even sums."""
    return numbers.with_columns(parity=PARITY).key_by("parity").process(RunningSum(), schema=Total)


@fm.operator
def parity_of_two(left: fm.Stream[Number], right: fm.Stream[Number]) -> fm.Stream:
    """Odd and even sums of two sources."""
    both = left.union(right).with_columns(parity=PARITY)
    return both.key_by("parity").process(RunningSum(), schema=Total, order="arrival")


@fm.operator
def remembering(numbers: fm.Stream[Number]) -> fm.Stream:
    """Patterns, a model and a history per key."""
    return numbers.key_by("key").process(Remembering(), schema=Memory, sides={"thirds": Aside})


def _together(left: fm.Stream[Number], right: fm.Stream[Number]) -> fm.Stream:
    """All of it, of two sources."""
    keyed = left.union(right).key_by("key")
    return keyed.process(Summing(), schema=Remembered, sides={"thirds": Aside}, order="arrival")


together: Operator = fm.operator(_together, name="together")
others: Operator = fm.operator(_together, name="others")


@fm.operator
def sessions(numbers: fm.Stream[Number]) -> fm.Stream:
    """Windows that are open for long."""
    return numbers.key_by("key").window(fm.Session("10ms")).aggregate(n=fm.count(), total=fm.sum("value"))


@fm.operator
def shown_early(numbers: fm.Stream[Number]) -> fm.Stream:
    """Totals per key, whose last values may be read before they are committed."""
    return numbers.key_by("key").rolling(total=fm.sum("value"))


OPERATORS = {
    one.name: one
    for one in (
        running_sums,
        parity_of_one,
        parity_of_two,
        remembering,
        together,
        sessions,
        replace(shown_early, isolation="read_uncommitted"),
        example("rules").faults,
    )
}


def main(folder: str, name: str, engine: Engine) -> None:
    """Run until caught up, one commit of the input per micro-batch."""
    if engine == "spark":
        sys.path.append(str(Path(__file__).resolve().parents[1] / "crash"))
        from borrowed import borrow

        borrow()
    computing = engines.computing(Settings(memory=300), engine=engine, app="victim")
    computing.run_unbounded(OPERATORS[name], Lake(folder), until_caught_up=True, files_per_batch=1)


if __name__ == "__main__":
    main(*sys.argv[1:3], cast("Engine", sys.argv[3]))
