"""Expectations at landing on the embedded engine: Sail says of each row which of them it does not meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from floodmark.connectors.judging.validation import ASKED, CHANGE, EVENT
from floodmark.core.errors import CapabilityError
from floodmark.engines.landing import judging, units
from floodmark.engines.landing.judging import Count
from floodmark.engines.landing.units import ROWS, Blob
from floodmark.spec.rows.criterion import SHOWN, RowCriterion
from floodmark.spec.rows.source import Source

if TYPE_CHECKING:
    from floodmark.engines.embedded.sail.session import Connection, Sail

_ROW = "_row"


def check(source: Source) -> None:
    """Refuse an expectation with ``on_fail`` that Sail judges otherwise than Spark.

    Raises:
        CapabilityError: CAPABILITY-031.
    """
    criteria = judging.criteria_of(source)
    if not criteria:
        return
    from floodmark.engines.embedded.parity.check import judged_otherwise  # noqa: PLC0415 - few sources need it

    for criterion in criteria:
        if (otherwise := judged_otherwise(criterion, source.schema)) is not None:
            where = f"source '{source.name}', expectation '{criterion.expectation.name}'"
            fix = f"Land it on Spark: floodmark land {source.name} --engine spark"
            expected = "an expectation that Sail judges as Spark does"
            raise CapabilityError(where, expected, f"{otherwise}", fix, code="CAPABILITY-031")


@dataclass(slots=True)
class Expecting:
    """The expectations of a source, judged for each row that keeps the contract.

    Args:
        source: with expectations that its landing judges.
        sail: that judges them.
    """

    source: Source
    sail: Sail
    refused: dict[int, dict[int, str]] = field(default_factory=dict, init=False)
    counts: dict[int, dict[str, Count]] = field(default_factory=dict, init=False)
    _criteria: tuple[RowCriterion, ...] = field(init=False)
    _texts: list[str] = field(init=False)
    _seen: Counter[int] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        from floodmark.engines.embedded.parity.check import sail_sql  # noqa: PLC0415 - few sources need it

        self._criteria, schema, self._texts = judging.criteria_of(self.source), self.source.schema, []
        for number, criterion in enumerate(self._criteria):
            unexpected, counted = sail_sql(criterion.unexpected, schema), sail_sql(criterion.counted or "true", schema)
            # as numbers, since Sail computes a boolean branch for all rows
            self._texts.append(f"CAST(coalesce(({unexpected}), false) AS int) AS _u{number}")
            self._texts.append(f"CAST(coalesce(({counted}), false) AS int) AS _n{number}")

    def through(self, blobs: Iterable[Blob]) -> Iterator[Blob]:
        """The blobs, unchanged. Fills ``refused``, and ``counts`` over the other rows."""
        for blob in blobs:
            unit, _, kind, data = blob
            if kind == ROWS:
                self._judge(unit, units.rows_of(data))
            yield blob

    def _judge(self, unit: int, rows: pa.RecordBatch) -> None:
        first = self._seen[unit]
        self._seen[unit] += len(rows)
        plain = rows.drop_columns([name for name in (CHANGE, EVENT, ASKED) if name in rows.schema.names])
        answers = self._answers(plain.append_column(_ROW, pa.array(range(len(rows)), pa.int64())))
        stays = np.ones(len(rows), dtype=bool)
        for number, criterion in enumerate(self._criteria):
            if criterion.expectation.on_fail == "quarantine":
                for index in np.flatnonzero(answers[f"_u{number}"] & stays).tolist():
                    self.refused.setdefault(unit, {})[first + index] = judging.reason(criterion)
                stays &= ~answers[f"_u{number}"]
        counts = self.counts.setdefault(unit, {})
        for number, criterion in enumerate(self._criteria):
            unexpected = answers[f"_u{number}"] & stays
            shown = plain.select(list(criterion.columns)).take(pa.array(np.flatnonzero(unexpected)[:SHOWN]))
            count = Count(
                int(stays.sum()),
                int((answers[f"_n{number}"] & stays).sum()),
                int(unexpected.sum()),
                tuple(criterion.example(row) for row in shown.to_pylist()),
            )
            name = criterion.expectation.name
            counts[name] = counts.get(name, Count()).plus(count)

    def _answers(self, rows: pa.RecordBatch) -> dict[str, np.ndarray[Any, np.dtype[np.bool_]]]:
        from floodmark.engines.embedded.sail.session import on_sail  # noqa: PLC0415 - few sources need it

        def ask(connection: Connection) -> pa.Table:
            frame = connection.spark.createDataFrame(pa.Table.from_batches([rows]))
            return frame.selectExpr(f"`{_ROW}`", *self._texts).toArrow()

        answers = on_sail(self.sail, ask).sort_by(_ROW)
        return {name: answers[name].to_numpy().astype(bool) for name in answers.column_names if name != _ROW}
