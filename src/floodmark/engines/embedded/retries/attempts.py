"""Rows for which an expression fails, on Sail: searched for after a query has failed, and marked for the quarantine.

Sail computes all rows of a query or none. So rows are first computed as if none failed. Only if that query ends with an error, the input
rows of each quarantining step are written to a file, the failing rows are marked there, and the following steps are computed from that file.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from floodmark.core.errors import CapabilityError
from floodmark.core.scratch import Scratch
from floodmark.engines.embedded.retries.halving import failing
from floodmark.engines.embedded.retries.reasons import reason, refusal
from floodmark.engines.embedded.retries.suspect import Suspect, suspect
from floodmark.engines.embedded.sail.prepared import Framing, Query, pieces
from floodmark.engines.embedded.sail.session import Connection, Sail, on_sail
from floodmark.engines.frames.compile import compiled
from floodmark.engines.frames.expressions import Rendering, value
from floodmark.semantics.kernels.attempts import Attempt, attempts, stage_attempts
from floodmark.semantics.kernels.failures import FAILURE_TYPE, Failure, expression_failure
from floodmark.semantics.kernels.stage import AnyStage
from floodmark.spec.expressions import expression
from floodmark.spec.graph import steps
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import FAILED, FAILURE, RETRACTION, ROW

_FEW = 64
"""Most rows that are tried in halves without a query for the suspect."""
_PLACE = "_place"
_ROWS = 1 << 17
"""Rows that are read from a file at a time."""


@dataclass(slots=True)
class Marking:
    """Marks the rows of one micro-batch, or of one bounded stretch, for which steps of an operator fail. Each step is marked once.

    Args:
        operator: of the steps.
        stage: of its stateful step; None without one.
        rendering: of expressions.
        sail: computes pieces of rows; a server that has grown too large is replaced between two pieces.
    """

    operator: Operator
    stage: AnyStage | None
    rendering: Rendering
    sail: Sail
    _marked: dict[steps.Step, Path | None] = field(init=False, default_factory=dict)
    _scratch: Scratch | None = field(init=False, default=None)

    @property
    def begun(self) -> bool:
        """Whether a step has been marked."""
        return bool(self._marked)

    def remove(self) -> None:
        """Remove the files of marked rows."""
        if self._scratch is not None:
            self._scratch.remove()

    def known(
        self,
        connection: Connection,
        last: Iterable[steps.Step],
        inputs: Mapping[str, DataFrame],
        known: Mapping[steps.Step, DataFrame],
    ) -> dict[steps.Step, DataFrame]:
        """Step -> frame, of the known steps and of each quarantining step, for which no expression of these steps fails.

        Args:
            connection: of the frames.
            last: steps up to which rows will be computed. For the stateful step, its parent becomes known, with its rows marked.
            inputs: input name -> stamped rows.
            known: step -> frame, of steps that are computed already.

        Raises:
            CapabilityError: CAPABILITY-031, Sail cannot tell Spark's answer for a row.
            PySparkException: the query fails for another reason.
        """
        frames = dict(known)
        for step in dict.fromkeys(step for last_step in last for step in behind(last_step, known)):
            tried = self._attempts(step)
            if not tried:
                continue
            (parent,) = step.parents
            rows = compiled(parent, inputs, frames, self.rendering)
            if step not in self._marked:
                keys = step.keys if isinstance(step, steps.STATEFUL) else ()
                self._marked[step] = self._file(rows, tried, keys)
            folder = self._marked[step]
            marked = rows if folder is None else connection.spark.read.parquet(str(folder))
            if isinstance(step, steps.STATEFUL):
                frames[parent] = marked
            else:
                frames[step] = compiled(step, inputs, {**frames, parent: marked}, self.rendering)
        return frames

    def marks(self, last: Iterable[steps.Step]) -> bool:
        """Whether rows may have to be marked before some steps.

        Args:
            last: as of ``known``.
        """
        return any(self._attempts(step) for one in last for step in behind(one, self._before(one)))

    def _before(self, last: steps.Step) -> Container[steps.Step]:
        """The stateful step, if ``last`` follows it: the rows of the stateful step are computed already then."""
        return () if self.stage is None or last is self.stage.step else (self.stage.step,)

    def _attempts(self, step: steps.Step) -> Sequence[Attempt]:
        if not steps.quarantines(step):
            return ()
        if isinstance(step, steps.STATEFUL):
            return [attempt for _, attempt in stage_attempts(self.stage)] if self.stage is not None else ()
        return attempts(step)

    def _file(self, rows: DataFrame, tried: Sequence[Attempt], keys: Sequence[str]) -> Path | None:
        """A folder with the rows of a frame, in which rows are marked for which an attempt fails; None without rows."""
        self._scratch = self._scratch or Scratch()
        source, target = (self._scratch.path / uuid4().hex for _ in range(2))
        rows.write.parquet(str(source))
        trial = _Trial(tried, keys, self.operator.name, self.rendering, self.sail)
        target.mkdir()
        count = 0
        for file in sorted(source.rglob("*.parquet")):
            for batch in pq.ParquetFile(file).iter_batches(_ROWS):
                pq.write_table(trial.marked(pa.Table.from_batches([batch])), target / f"{count}.parquet")
                count += 1
            file.unlink()
        return target if count else None


def behind(step: steps.Step, known: Container[steps.Step]) -> Iterator[steps.Step]:
    """A step and the steps before it, up to the known steps; parents first."""
    if step in known:
        return
    for parent in step.parents:
        yield from behind(parent, known)
    yield step


@dataclass(slots=True)
class _Trial:
    """Tries the expressions of a step.

    Args:
        attempts: of the step.
        keys: columns of the key, for the quarantine.
        operator: name of the operator.
        rendering: of expressions.
        sail: that computes the expressions.
    """

    attempts: Sequence[Attempt]
    keys: Sequence[str]
    operator: str
    rendering: Rendering
    sail: Sail
    _queries: dict[tuple[str, int | None], Query] = field(init=False, default_factory=dict)

    def marked(self, table: pa.Table) -> pa.Table:
        """Rows of the step's parent, in which rows are marked for which an attempt fails; retractions among those are left out."""
        failures = self._failures(table)
        if FAILURE not in table.column_names:
            table = table.append_column(FAILURE, pa.nulls(table.num_rows, FAILURE_TYPE))
        if not failures:
            return table
        places, size = sorted(failures), table.num_rows
        marks, sources = np.zeros(size, dtype=bool), np.arange(size)
        marks[places], sources[places] = True, np.arange(size, size + len(places))
        why = pa.chunked_array([*table[FAILURE].chunks, pa.array([failures[place] for place in places], FAILURE_TYPE)])
        kinds = table["_kind"]
        columns = {
            FAILURE: why.take(pa.array(sources)),
            "_kind": pc.if_else(pa.array(marks), pa.scalar(FAILED, kinds.type), kinds),
        }
        retracted = pc.and_(pa.array(marks), pc.equal(kinds, RETRACTION))
        for name, column in columns.items():
            table = table.set_column(table.column_names.index(name), name, column)
        return table.filter(pc.invert(retracted))

    def _failures(self, table: pa.Table) -> dict[int, Failure]:
        """Index of a row -> the failure of the first attempt that fails for the row."""
        left = np.flatnonzero(pc.less_equal(table["_kind"], ROW).to_numpy(zero_copy_only=False))
        by_index: dict[int, Failure] = {}
        if self._error(None, table.take(left)) is None:
            return by_index
        for number, attempt in enumerate(self.attempts):
            rows = table.take(left)
            why = dict(self._failing(number, rows))
            failing_rows = rows.take(pa.array(list(why), pa.int64())).to_pylist() if why else []
            for (index, message), row in zip(why.items(), failing_rows, strict=True):
                by_index[int(left[index])] = self._failure(attempt, row, message)
            left = np.delete(left, list(why))
        return by_index

    def _failing(self, number: int, rows: pa.Table) -> Iterator[tuple[int, str]]:
        """(index, message) of the rows for which an attempt fails; of rows with equal values only one is tried."""
        error = self._error(number, rows.slice(0, 0))
        if error is not None:  # the attempt fails without any row
            raise error
        alike = _alike(rows.select(self._read(number)))
        tried = rows.take(pa.array([indices[0] for indices in alike], pa.int64()))

        for index, message in self._suspected(number, tried):
            for row in alike[index]:
                yield row, message

    def _suspected(self, number: int, tried: pa.Table) -> Iterator[tuple[int, str]]:
        """(index, message) of the rows for which an attempt fails: by one query for the attempt's suspect, in halves for other rows."""
        attempt, known = self.attempts[number], dict[int, str]()
        candidate = suspect(attempt) if tried.num_rows > _FEW else None
        if candidate is not None and (texts := self._shown(number, candidate, tried)):
            first, *_ = texts
            first_message = self._why(number, tried.slice(first, 1))
            known = {
                index: reason(attempt, candidate.message.format(text)) if candidate.message else first_message or ""
                for index, text in texts.items()
            }
            if known[first] != first_message:  # the message of Sail is another than expected: try all rows in halves
                known = {}
        yield from known.items()
        indices = np.setdiff1d(np.arange(tried.num_rows), list(known))
        others = tried.take(pa.array(indices, pa.int64()))
        for index, message in failing(
            len(indices), lambda start, stop: self._why(number, others.slice(start, stop - start))
        ):
            yield int(indices[index]), message

    def _why(self, number: int, rows: pa.Table) -> str | None:
        """Why an attempt fails for some of the rows; None if it fails for no row."""
        error = self._error(number, rows)
        return None if error is None else reason(self.attempts[number], str(error))

    def _shown(self, number: int, candidate: Suspect, rows: pa.Table) -> dict[int, str]:
        """Index -> the text in the message, of rows for which the suspect fails."""
        shown: dict[int, str] = {}
        for piece in pieces(rows.append_column(_PLACE, pa.array(np.arange(rows.num_rows), pa.int64()))):
            texts = on_sail(self.sail, partial(self._shown_on, number, candidate, piece))
            shown.update(zip(texts[_PLACE].to_pylist(), texts["shown"].to_pylist(), strict=True))
        return dict(sorted(shown.items()))

    def _shown_on(self, number: int, candidate: Suspect, rows: pa.Table, connection: Connection) -> pa.Table:
        tables = {"": rows.select([*self._read(number), _PLACE])}

        def framing(frames: Mapping[str, DataFrame]) -> DataFrame:
            return frames[""].filter(candidate.fails).selectExpr(f"`{_PLACE}`", f"{candidate.shown} AS shown")

        return self._asked(("suspect", number), tables, framing, connection)

    def _read(self, number: int | None) -> list[str]:
        """The columns that an attempt, or all attempts, read."""
        tried = self.attempts if number is None else [self.attempts[number]]
        return list(dict.fromkeys(n for one in tried for n in expression(one.text, one.schema, one.step).columns))

    def _failure(self, attempt: Attempt, row: Mapping[str, object], message: str) -> Failure:
        values = {name: row[name] for name in attempt.schema.names}
        if (refused := refusal(message)) is not None:
            where = f"operator '{self.operator}', {attempt.step}"
            got = f"{refused} in {attempt.text!r} (the row: {expression_failure('', '', values)['given']})"
            fix = f"Nothing is lost or there twice. Run it on Spark: floodmark run {self.operator} --engine spark"
            raise CapabilityError(where, "values that Sail computes as Spark does", got, fix, code="CAPABILITY-031")
        key = {name: row[name] for name in self.keys} if self.keys else None
        return expression_failure(attempt.step, attempt.explained(message), values, key)

    def _error(self, number: int | None, rows: pa.Table) -> PySparkException | None:
        """The error of computing an attempt, or all attempts, for rows; None if there is none."""
        try:
            for piece in pieces(rows):
                on_sail(self.sail, partial(self._tried, number, piece))
        except PySparkException as error:
            return error
        return None

    def _tried(self, number: int | None, rows: pa.Table, connection: Connection) -> None:
        tried = self.attempts if number is None else [self.attempts[number]]
        tables = {"": rows.select([*self._read(number), "_kind"])}

        def framing(frames: Mapping[str, DataFrame]) -> DataFrame:
            values = [value(one.text, one.type, one.schema, self.rendering) for one in tried]
            named = [f"{text} AS `_tried_{place}`" for place, text in enumerate(values)]
            return frames[""].selectExpr(*named).selectExpr(*(f"count(`_tried_{n}`)" for n in range(len(named))))

        self._asked(("all", number), tables, framing, connection)

    def _asked(
        self, key: tuple[str, int | None], tables: Mapping[str, pa.Table], framing: Framing, connection: Connection
    ) -> pa.Table:
        """The rows of a frame; the frame is made once for each server."""
        return self._queries.setdefault(key, Query(framing)).rows(connection, tables)


def _alike(rows: pa.Table) -> list[list[int]]:
    """The indices of rows with equal values, group by group, in order; each row is a group of its own if values are nested."""
    if not rows.num_columns or any(pa.types.is_nested(kind) for kind in rows.schema.types):
        return [[place] for place in range(rows.num_rows)]
    bits = {name: _bits(rows[name].combine_chunks()) for name in rows.column_names}
    places = pa.table({**bits, _PLACE: pa.array(range(rows.num_rows), pa.int64())})
    groups = places.group_by(list(bits), use_threads=False).aggregate([(_PLACE, "list")])
    return sorted(groups[f"{_PLACE}_list"].to_pylist())


def _bits(column: pa.Array) -> pa.Array:
    """Floating numbers as their bits, so that 0.0 and -0.0 are two values."""
    width = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}.get(column.type)
    return column if width is None else column.view(width)
