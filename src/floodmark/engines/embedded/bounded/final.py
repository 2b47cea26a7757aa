"""Results of kernels that are the rows of an output as they are: written once, in the files of its table, with the last row of each key beside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.types import parse
from floodmark.lake.table.rows import row_schema
from floodmark.semantics.kernels.attempts import is_column
from floodmark.spec.graph.operator import Operator
from floodmark.spec.graph.steps import Project, Stateful, Step
from floodmark.spec.values.schema import ROW, Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """The output whose rows are the results of a stage.

    Args:
        columns: (column of the output, column of the results).
        schema: of the output.
        keys: columns of the key of the output's table of last values, all rows of which are in one key group; empty without such a table.
    """

    columns: tuple[tuple[str, str], ...]
    schema: Schema
    keys: tuple[str, ...] = ()

    def rows(self, results: pa.Table) -> pa.Table:
        """(results with all stamps) -> rows of the output's table."""
        whole, names = row_schema(self.schema), dict(self.columns)
        columns = [results[names.get(name, name)] for name in whole.names]
        return pa.table(columns, whole.names).cast(whole)


def final_of(operator: Operator, step: Stateful) -> Final | None:
    """The output of a link that writes outputs, if its rows are the results of its stage ``step``; None if more is computed of the results."""
    whole = operator.whole or operator
    if len(operator.results) != 1 or whole.partitions is not None:
        return None
    ((name, result),) = operator.results
    columns = _plain(result, step)
    if columns is None:
        return None
    current = whole.output(name).current
    keys = () if current is None or not _in_a_key_group(current.keys, columns, step) else current.keys
    return Final(columns=tuple(columns.items()), schema=result.schema, keys=keys)


def _plain(result: Step, step: Stateful) -> dict[str, str] | None:
    """Column of a result -> column of a stage, if the result only chooses and names columns; None otherwise."""
    if result is step:
        return {name: name for name in step.schema.names}
    if not isinstance(result, Project) or result.on_error != "stop":
        return None
    below = _plain(result.parent, step)
    if below is None or not all(is_column(text, result.parent.schema) for _, text in result.columns):
        return None
    return {name: below[text.strip("`")] for name, text in result.columns}


def _in_a_key_group(keys: tuple[str, ...], columns: dict[str, str], step: Stateful) -> bool:
    """Whether all rows of a key of last values are results of one key group, and Arrow groups by such keys."""
    own = {columns[key] for key in keys}
    return bool(keys) and own >= set(step.keys) and not any(parse(step.schema.types[name]).inner for name in own)


class LastRows:
    """The last row of each key of rows that come bit by bit.

    Args:
        keys: columns.
        memory: most bytes to hold.
    """

    def __init__(self, keys: tuple[str, ...], memory: int) -> None:
        self._keys, self._memory = keys, memory
        self._parts: list[pa.Table] | None = []

    def add(self, rows: pa.Table) -> None:
        """Complete rows of an output."""
        if self._parts is None:
            return
        self._parts.append(_last(rows, self._keys))
        if sum(part.nbytes for part in self._parts) > self._memory:
            self._parts = [_last(pa.concat_tables(self._parts), self._keys)]
            if self._parts[0].nbytes > self._memory // 2:
                self._parts = None

    def rows(self) -> pa.Table | None:
        """The last rows that are no retractions; None if they are more than fit into memory."""
        if not self._parts:
            return None
        last = _last(pa.concat_tables(self._parts), self._keys)
        return last.filter(pc.equal(last["_kind"], ROW))


def _last(rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """The last row of each key: of the greatest ``_sequence``, and there the row before its retraction's."""
    steps, kinds = (np.diff(rows[name].to_numpy()) for name in ("_sequence", "_kind"))
    if not ((steps > 0) | ((steps == 0) & (kinds >= 0))).all():
        rows = rows.take(pc.sort_indices(rows, [("_sequence", "ascending"), ("_kind", "ascending")]))
    places = rows.select(list(keys)).append_column("_place", pa.array(np.arange(rows.num_rows)))
    last = places.group_by(list(keys), use_threads=False).aggregate([("_place", "max")])["_place_max"]
    return rows.take(last)
