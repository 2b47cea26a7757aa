"""The functions of ``over``: a result for each row, of the rows of its key up to it."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from floodmark.core.fingerprint import form
from floodmark.core.time import describe_span
from floodmark.spec.keyed.process import Context, Row, StatefulFunction
from floodmark.spec.keyed.top import Ranking
from floodmark.spec.windowing.frames import Frame, OverRow, Position

LATE = "late"
"""The output of late rows."""


@frozen
class Measure:
    """One result of each row.

    Args:
        name: its column.
        of: what is computed.
        frame: of which rows.
    """

    name: str
    of: OverRow
    frame: Frame

    def canonical(self) -> list[object]:
        """Name, what is computed, frame; as JSON values."""
        return [self.name, self.of.canonical(), self.frame.canonical()]


class Over(StatefulFunction):
    """Results over the rows of a key in order of event time. ``semantics.kernels.functions.over`` computes them.

    State is the rows of the longest frame, or an accumulator for a frame without a begin.

    Args:
        measures: one per column.
        columns: expression of a measure -> column of the input that holds it.
        types: expression of a measure -> its Spark SQL type.
        late: whether late rows are written to an output.
    """

    def __init__(
        self, measures: tuple[Measure, ...], columns: Mapping[str, str], types: Mapping[str, str], *, late: bool
    ) -> None:
        self.measures, self.columns, self.types, self.late = measures, dict(columns), dict(types), late

    def held(self) -> str:
        """What the state of a key is, in words."""
        bounded = [m.frame for m in self.measures if m.frame.preceding is not None]
        lags = [m.of.n for m in self.measures if isinstance(m.of, Position) and m.of.function == "lag"]
        rows = max([*lags, *(f.preceding or 0 for f in bounded if f.unit == "rows")], default=0)
        time = max((f.preceding or 0 for f in bounded if f.unit == "range"), default=None)
        parts = [f"the last {rows} rows of a key"] if rows else []
        parts += [f"its rows of the last {describe_span(time)}"] if time is not None else []
        accumulated = [m for m in self.measures if m.frame.preceding is None and not isinstance(m.of, Position)]
        parts += ["an accumulator per key for ever"] if accumulated else []
        return ", ".join(parts) or "a count per key for ever"

    def canonical(self) -> dict[str, object]:
        """Name and settings; in place of its code in fingerprints."""
        return {"name": "over", "settings": {"measures": form(self.measures)}, "states": self.layout()}


class OverChanging(Over):
    """Results over the rows of a key in an order of their own, which later rows change. ``semantics.kernels.functions.reordered`` computes them.

    State is all rows of a key with their results.

    Args:
        measures: one per column.
        columns: expression of a measure -> column of the input that holds it.
        types: expression of a measure -> its Spark SQL type.
        ranking: the order; its numbers have no meaning here.
        own: columns of the input that are in a result, keys left out.
    """

    revises = True
    multiset = True
    unordered = True

    def __init__(
        self,
        measures: tuple[Measure, ...],
        columns: Mapping[str, str],
        types: Mapping[str, str],
        *,
        ranking: Ranking,
        own: tuple[str, ...],
    ) -> None:
        super().__init__(measures, columns, types, late=False)
        self.ranking, self.own = ranking, own

    @property
    def takes_back(self) -> bool:
        """Always True."""
        return True

    def on_retract(self, row: Row, ctx: Context) -> None:
        """The kernel has it."""
        raise NotImplementedError

    def held(self) -> str:
        """What the state of a key is, in words."""
        return "all rows of a key with their results, for ever"

    def canonical(self) -> dict[str, object]:
        """Name and settings; in place of its code in fingerprints."""
        settings = {"measures": form(self.measures), "order": form(self.ranking.by), "columns": form(self.own)}
        return {"name": "over_changing", "settings": settings, "states": self.layout()}
