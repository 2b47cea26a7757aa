"""Punctuation on Sail: the predicate that decides which rows of a source advance its watermark, computed by Sail during landing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from floodmark.connectors.judging.validation import ASKED, CHANGE, EVENT
from floodmark.core.errors import CapabilityError
from floodmark.engines.landing import units
from floodmark.engines.landing.judging import Refused
from floodmark.engines.landing.spool import SpooledBlobs, spooled
from floodmark.engines.landing.units import ROWS, Blob
from floodmark.semantics.kernels.attempts import Attempt
from floodmark.semantics.kernels.failures import expression_failure
from floodmark.spec.rows.source import Punctuated, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from floodmark.engines.embedded.sail.session import Connection, Sail

_ROW, _MOVES = "_row", "_moves"


def judged(parse: Callable[[Refused], Iterable[Blob]], source: Source, sail: Callable[[], Sail]) -> SpooledBlobs:
    """The blobs of some units, after the source's predicate, if it has one, is computed for their rows.

    A row for which the predicate fails is a broken row. The units are then parsed again, to find these rows and to land the others.

    Args:
        parse: (refused rows) -> the blobs of the units, in which the refused rows are broken.
        source: of the units.
        sail: called only if the source has a predicate.
    """
    if not isinstance(source.watermark, Punctuated):
        return spooled(parse({}))
    first = _Asked(source, sail())
    blobs = spooled(units.retraced(first.opened(parse({})), source.partition_by))
    if not first.refused:
        return blobs
    blobs.release()
    again = _Asked(source, first.sail)
    return spooled(units.retraced(again.opened(parse(first.refused)), source.partition_by))


def check(source: Source) -> None:
    """Refuse a predicate that Sail computes otherwise than Spark.

    Raises:
        CapabilityError: CAPABILITY-031.
    """
    if not isinstance(source.watermark, Punctuated):
        return
    from floodmark.engines.embedded.parity.check import sail_sql  # noqa: PLC0415 - few sources need it

    try:
        sail_sql(source.watermark.predicate, source.schema, f"watermark of source '{source.name}'")
    except CapabilityError as error:
        fix = f"Land it on Spark: floodmark land {source.name} --engine spark"
        raise CapabilityError(error.where, error.expected, error.got, fix, code=error.code) from None


@dataclass(slots=True)
class _Asked:
    """The predicate of a source, computed for each row that keeps the contract.

    Args:
        source: with a predicate.
        sail: that computes the predicate.
        refused: rows for which the predicate has failed so far.
    """

    source: Source
    sail: Sail
    refused: dict[int, dict[int, str]] = field(default_factory=dict)
    _text: str = field(init=False)
    _attempt: Attempt = field(init=False)
    _seen: Counter[int] = field(init=False, default_factory=Counter)

    def __post_init__(self) -> None:
        from floodmark.engines.embedded.parity.check import sail_sql  # noqa: PLC0415 - as above

        assert isinstance(self.source.watermark, Punctuated)
        text, schema = self.source.watermark.predicate, self.source.schema
        self._attempt = Attempt(step="Punctuated", text=text, type="boolean", schema=schema)
        # as a number, since Sail computes a boolean branch for all rows
        self._text = f"CAST(coalesce(({sail_sql(text, schema)}), false) AS int) AS `{_MOVES}`"

    def opened(self, blobs: Iterable[Blob]) -> Iterator[tuple[Blob, pa.RecordBatch | None]]:
        """Each blob, and for a blob of rows its rows, which advance the watermark only if the predicate is true for them."""
        for blob in blobs:
            unit, _, kind, data = blob
            if kind != ROWS:
                yield blob, None
                continue
            rows, first = units.rows_of(data), self._seen[unit]
            self._seen[unit] += len(rows)
            numbered = rows.drop_columns([name for name in (CHANGE, EVENT, ASKED) if name in rows.schema.names])
            numbered = numbered.append_column(_ROW, pa.array(range(len(rows)), pa.int64()))
            moves = [False] * len(rows)
            for index, moved in self._asked(unit, first, pa.Table.from_batches([numbered])):
                moves[index] = moved
            yield blob, units.moving(rows, moves)

    def _asked(self, unit: int, first: int, rows: pa.Table) -> Iterator[tuple[int, bool]]:
        """(row, whether it advances the watermark) of rows; rows for which the predicate fails are put into ``refused``."""
        from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

        try:
            answers = self._on_sail(rows, lambda asked: asked.toArrow())
        except PySparkException as error:
            half = rows.num_rows // 2
            if not half:
                (index,) = rows[_ROW].to_pylist()
                self.refused.setdefault(unit, {})[first + index] = f"Punctuated, {self._reason(rows, str(error))}"
                return
            self._on_sail(rows, lambda asked: asked.schema)  # fails as well if the error is not about a row
            yield from self._asked(unit, first, rows.slice(0, half))
            yield from self._asked(unit, first, rows.slice(half))
        else:
            yield from zip(answers[_ROW].to_pylist(), map(bool, answers[_MOVES].to_pylist()), strict=True)

    def _reason(self, row: pa.Table, message: str) -> str:
        """Why the predicate fails for a row.

        Raises:
            CapabilityError: CAPABILITY-031, the predicate may not fail on Spark.
        """
        from floodmark.engines.embedded.retries.reasons import reason, refusal  # noqa: PLC0415 - as above

        if (refused := refusal(message)) is not None:
            row_json = expression_failure("", "", row.drop_columns([_ROW]).to_pylist()[0])["given"]
            where, got = (
                f"watermark of source '{self.source.name}'",
                f"{refused} in {self._attempt.text!r} (the row: {row_json})",
            )
            fix = f"Nothing is lost or there twice. Land it on Spark: floodmark land {self.source.name} --engine spark"
            raise CapabilityError(where, "values that Sail computes as Spark does", got, fix, code="CAPABILITY-031")
        return self._attempt.explained(reason(self._attempt, message))

    def _on_sail(self, rows: pa.Table, answer: Callable[[DataFrame], Any]) -> Any:
        from floodmark.engines.embedded.sail.session import on_sail  # noqa: PLC0415 - as above

        def ask(connection: Connection) -> Any:
            return answer(connection.spark.createDataFrame(rows).selectExpr(f"`{_ROW}`", self._text))

        return on_sail(self.sail, ask)
