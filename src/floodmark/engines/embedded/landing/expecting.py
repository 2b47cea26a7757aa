"""Expectations at landing on the embedded engine: Sail says of each row which of them it does not meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from floodmark.connectors.judging.validation import ASKED, CHANGE, EVENT
from floodmark.core.errors import CapabilityError
from floodmark.engines.landing import judging, units
from floodmark.engines.landing.judging import Count
from floodmark.engines.landing.units import ROWS, Blob
from floodmark.spec.rows.contract import Contract
from floodmark.spec.rows.contract import schema as schema_of
from floodmark.spec.rows.criteria import judged_landing
from floodmark.spec.rows.criterion import SHOWN, RowCriterion
from floodmark.spec.rows.source import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from floodmark.engines.embedded.sail.prepared import Query
    from floodmark.engines.embedded.sail.session import Sail

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
class _Judge:
    """What the landings of a process ask of the rows of a contract."""

    criteria: tuple[RowCriterion, ...]
    texts: tuple[str, ...]
    queries: dict[pa.Schema, Query] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)
    """Of the queries: landings of several sources may have one contract."""

    def answers(self, sail: Sail, rows: pa.Table) -> pa.Table:
        """Of each row, which criteria it does not meet, and which count it."""
        from floodmark.engines.embedded.sail.prepared import Query, pieces  # noqa: PLC0415 - few sources need it
        from floodmark.engines.embedded.sail.session import on_sail  # noqa: PLC0415 - the same

        def framing(frames: Mapping[str, DataFrame]) -> DataFrame:
            return frames["rows"].selectExpr(f"`{_ROW}`", *self.texts)

        with self.lock:
            query = self.queries.setdefault(rows.schema, Query(framing))
            parts = [on_sail(sail, partial(query.rows, tables={"rows": piece})) for piece in pieces(rows)]
        return pa.concat_tables(parts)


@lru_cache(64)
def _judge_of(contract: type[Contract]) -> _Judge:
    from floodmark.engines.embedded.parity.check import sail_sql  # noqa: PLC0415 - few sources need it

    schema, texts = schema_of(contract), list[str]()
    criteria = judged_landing(contract.floodmark_expectations, schema)
    for number, criterion in enumerate(criteria):
        unexpected, counted = sail_sql(criterion.unexpected, schema), sail_sql(criterion.counted or "true", schema)
        # as numbers, since Sail computes a boolean branch for all rows
        texts.append(f"CAST(coalesce(({unexpected}), false) AS int) AS _u{number}")
        texts.append(f"CAST(coalesce(({counted}), false) AS int) AS _n{number}")
    return _Judge(criteria, tuple(texts))


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
    _judge: _Judge = field(init=False)
    _seen: Counter[int] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        self._judge = _judge_of(self.source.contract)

    def through(self, blobs: Iterable[Blob]) -> Iterator[Blob]:
        """The blobs, unchanged. Fills ``refused``, and ``counts`` over the other rows."""
        for blob in blobs:
            unit, _, kind, data = blob
            if kind == ROWS:
                self._count(unit, units.rows_of(data))
            yield blob

    def _count(self, unit: int, rows: pa.RecordBatch) -> None:
        first = self._seen[unit]
        self._seen[unit] += len(rows)
        plain = rows.drop_columns([name for name in (CHANGE, EVENT, ASKED) if name in rows.schema.names])
        answers = self._answers(plain.append_column(_ROW, pa.array(range(len(rows)), pa.int64())))
        stays = np.ones(len(rows), dtype=bool)
        for number, criterion in enumerate(self._judge.criteria):
            if criterion.expectation.on_fail == "quarantine":
                for index in np.flatnonzero(answers[f"_u{number}"] & stays).tolist():
                    self.refused.setdefault(unit, {})[first + index] = judging.reason(criterion)
                stays &= ~answers[f"_u{number}"]
        counts = self.counts.setdefault(unit, {})
        for number, criterion in enumerate(self._judge.criteria):
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
        answers = self._judge.answers(self.sail, pa.Table.from_batches([rows])).sort_by(_ROW)
        return {name: answers[name].to_numpy().astype(bool) for name in answers.column_names if name != _ROW}
