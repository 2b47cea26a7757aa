"""The functions of ``top`` and ``unique``: the first rows of each key by an order, and each key once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from attrs import frozen

from floodmark.core.fingerprint import Declared, canonical, form
from floodmark.spec.keyed.order import ordered
from floodmark.spec.keyed.process import Context, Row, StatefulFunction
from floodmark.spec.keyed.state import ValueState
from floodmark.spec.values.functions import Pane

Numbering = Literal["row_number", "rank", "dense_rank"]


@frozen
class By(Declared):
    """A column that rows are ordered by.

    Args:
        column: of the input.
        descending: the greatest value comes first.
        nulls_first: rows without a value come before the others.
    """

    column: str
    descending: bool
    nulls_first: bool

    @property
    def text(self) -> str:
        """As it is written: ``"price DESC"``, and ``NULLS`` where they are not with the least values."""
        direction = " DESC" if self.descending else ""
        nulls = "" if self.nulls_first != self.descending else f" NULLS {'FIRST' if self.nulls_first else 'LAST'}"
        return f"{self.column}{direction}{nulls}"


@frozen
class Ranking(Declared):
    """An order of rows, and how many of them are first.

    Args:
        by: the columns of the order; rows with equal values come in order of processing. Without any, that order alone.
        n: the greatest number of a row that counts.
        numbering: what numbers the rows.
        number: the column of the number; empty for none.
        latest: of rows with equal values the one that was processed last comes first.
    """

    by: tuple[By, ...]
    n: int
    numbering: Numbering = "row_number"
    number: str = ""
    latest: bool = False

    def key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """What a row is sorted by."""
        return tuple(ordered(row[by.column], descending=by.descending, nulls_first=by.nulls_first) for by in self.by)

    def numbers(self, keys: Sequence[Any]) -> list[int]:
        """(what rows are sorted by, ascending) -> the number of each row that is one of the first."""
        if self.numbering == "row_number":
            return list(range(1, min(self.n, len(keys)) + 1))
        numbers: list[int] = []
        for at, key in enumerate(keys):
            tied = bool(numbers) and key == keys[at - 1]
            if self.numbering == "rank":
                number = numbers[-1] if tied else at + 1
            else:
                number = numbers[-1] + (not tied) if numbers else 1
            if number > self.n:
                break
            numbers.append(number)
        return numbers


class Top(StatefulFunction):
    """The first rows of each key so far, which later rows change. ``semantics.kernels.functions.top`` computes them.

    State is the rows that are first; all rows where rows may be retracted.

    Args:
        ranking: the order and the number of rows.
        columns: of the input that are in a result.
    """

    revises = True

    def __init__(self, ranking: Ranking, columns: tuple[str, ...]) -> None:
        self.ranking, self.columns = ranking, columns

    @property
    def identity(self) -> tuple[str, ...] | None:  # type: ignore[override]  # of the base a constant
        """The number of a row, where each row has its own; None where nothing tells the rows of a key apart."""
        if self.ranking.numbering != "row_number":
            return None
        if self.ranking.number:
            return (self.ranking.number,)
        return () if self.ranking.n == 1 else None

    @property
    def takes_back(self) -> bool:
        """Always True."""
        return True

    def on_retract(self, row: Row, ctx: Context) -> None:
        """The kernel has it."""
        raise NotImplementedError

    def canonical(self) -> dict[str, object]:
        """Name and settings; in place of its code in fingerprints."""
        settings = {"ranking": self.ranking.canonical(), "columns": form(self.columns)}
        return {"name": "top", "settings": settings, "states": self.layout()}


class TopAtOnce(StatefulFunction):
    """The first of the rows of a key and event time. ``semantics.kernels.functions.top`` computes them; there is no state."""

    def __init__(self, ranking: Ranking, columns: tuple[str, ...]) -> None:
        self.ranking, self.columns = ranking, columns

    def canonical(self) -> dict[str, object]:
        """Name and settings; in place of its code in fingerprints."""
        settings = {"ranking": self.ranking.canonical(), "columns": form(self.columns)}
        return {"name": "top_at_once", "settings": settings, "states": self.layout()}


class TopOfWindow:
    """The rows of a window -> the first of them."""

    def __init__(self, ranking: Ranking, columns: tuple[str, ...]) -> None:
        self.ranking, self.columns = ranking, columns

    def text(self) -> str:
        """The name and settings, in place of its code in fingerprints."""
        return canonical({"top_of_window": self.ranking.canonical(), "columns": list(self.columns)})

    def __call__(self, pane: Pane, rows: Sequence[Row]) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - a window function
        """The first rows."""
        return first_of(self.ranking, self.columns, rows)


def first_of(ranking: Ranking, columns: Iterable[str], rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The first of some rows, which are in order of processing."""
    in_turn = list(reversed(rows)) if ranking.latest else list(rows)
    in_order = sorted(in_turn, key=ranking.key)
    names = list(columns)
    for row, number in zip(in_order, ranking.numbers([ranking.key(row) for row in in_order]), strict=False):
        yield {name: row[name] for name in names} | ({ranking.number: number} if ranking.number else {})


class Unique(StatefulFunction):
    """Each key once, as long as a row has it: a key is taken back where its rows may be."""

    revises_with_input = True
    rows = ValueState(int)

    def canonical(self) -> dict[str, object]:
        """Its name; in place of its code in fingerprints."""
        return {"name": "unique", "states": self.layout()}

    def on_element(self, row: Row, ctx: Context) -> Iterator[Row]:  # noqa: ARG002 - a process function
        """Emit the key with its first row."""
        count = self.rows.get(0)
        self.rows.update(count + 1)
        if not count:
            yield {}

    def on_retract(self, row: Row, ctx: Context) -> None:  # noqa: ARG002 - a process function
        """Take the key back with its last row."""
        count = self.rows.get(0) - 1
        self.rows.update(count or None)
        if not count:
            ctx.retract({})  # type: ignore[attr-defined]  # floodmark's own functions may

    @property
    def takes_back(self) -> bool:
        """Always True."""
        return True
