"""Cut-overs by event time: in one table, results before an instant come from one version of an operator, results from the instant on from another.

Both versions resumed from one savepoint, each in its own lake. Results since the savepoint are renumbered: first those of the staying version, then
those of the coming version. So each ``_sequence`` belongs to one result, and a reader in that order never sees progress before the results it
covers. Files that hold only unchanged rows are linked. No JVM is needed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from floodmark.core.errors import LifecycleError
from floodmark.core.sql import literal, quoted
from floodmark.core.time import END, from_ms, iso
from floodmark.lake.table.files import rows_of
from floodmark.lake.writing import derived
from floodmark.spec.values.schema import BOUNDED, MARKER

if TYPE_CHECKING:
    from pyarrow import dataset

SET_ASIDE = ("__late", "__quarantine")
"""Name suffixes of outputs whose rows are input rows and keep the input's ``_sequence``."""
_HOW = ("_watermark", "_progress", "_ingest_time")
"""Stamps that depend on the run and do not identify a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A subset of the files of a table version.

    Args:
        path: path of the table.
        version: version of the table.
        files: paths of the files in the table's folder.
    """

    path: str
    version: int
    files: Collection[str]

    def rows(self, schema: pa.Schema) -> dataset.Dataset:
        """The rows of the files, with the columns of ``schema``. Columns that a file lacks are null."""
        return rows_of(DeltaTable(self.path, version=self.version), lambda path: path in self.files, schema)


@dataclass(frozen=True, kw_only=True)
class Cutover:
    """The cut-over of one table.

    Args:
        table: name of the table.
        staying: (path, table version before the cut-over) of the existing table.
        coming: (path, table version) of the other operator version's table.
        at: instant of the cut-over, ms: results of the existing table with ``_event_time`` before it stay.
        since: the first ``_sequence`` of results after the common savepoint; None if rows keep the ``_sequence`` of input rows.
    """

    table: str
    staying: tuple[str, int]
    coming: tuple[str, int]
    at: int
    since: int | None

    @cached_property
    def _old(self) -> DeltaTable:
        return DeltaTable(self.staying[0], version=self.staying[1])

    @cached_property
    def _new(self) -> DeltaTable:
        return DeltaTable(self.coming[0], version=self.coming[1])

    def check(self) -> None:
        """Check that one table can hold the rows of both versions: same column types, same partition columns.

        Raises:
            LifecycleError: LIFECYCLE-110, the tables differ.
        """
        old, new = (
            {one.name: one.type.to_json().strip('"') for one in table.schema().fields}
            for table in (self._old, self._new)
        )
        differ = [f"{name} {old[name]} -> {new[name]}" for name in old if name in new and old[name] != new[name]]
        cuts = [table.metadata().partition_columns for table in (self._old, self._new)]
        if not differ and cuts[0] == cuts[1]:
            return
        got = f"columns of other types: {', '.join(differ)}" if differ else "tables that are divided differently"
        fix = "Let all results since the versions parted be the new one's: leave the cut-over out."
        raise LifecycleError(
            f"cut-over of '{self.table}'", "one table for both versions", got, fix, code="LIFECYCLE-110"
        )

    @property
    def part(self) -> Part:
        """The files of the existing table whose rows all stay unchanged."""
        actions = pa.table(self._old.get_add_actions(flatten=True)).to_pylist()
        files = [unquote(one["path"]) for one in actions if self._stays(one)]
        return Part(path=self.staying[0], version=self.staying[1], files=frozenset(files))

    def _stays(self, action: dict[str, object]) -> bool:
        last, markers = action.get("max._event_time"), action.get("null_count._event_time")
        if last is None or markers != 0 or self.table.endswith(SET_ASIDE):
            return False
        low, high = action.get("min._sequence"), action.get("max._sequence")
        before = self.since is None or (isinstance(high, int) and high < self.since)
        bounded = isinstance(low, int) and low >= BOUNDED
        return bool(last < from_ms(min(self.at, END))) and (before or bounded)  # type: ignore[operator]  # both are times

    def write(self, target: str) -> None:
        """Write all rows except those of ``part`` into a new table with the columns of the coming table. Replaces an existing table at ``target``."""
        coming, skipped = self._new.to_pyarrow_dataset(), self.part.files
        staying = rows_of(self._old, lambda path: path not in skipped)
        names, there = coming.schema.names, set(staying.schema.names)
        own = ", ".join(quoted(name) if name in there else f"NULL AS {quoted(name)}" for name in names)
        rows = self._set_aside(names) if self.table.endswith(SET_ASIDE) else self._results()
        markers = (
            f"SELECT * FROM staying WHERE _kind = {MARKER} AND _progress < {self.at} "
            f"UNION ALL SELECT * FROM coming WHERE _kind = {MARKER} AND _progress >= {self.at}"
        )
        query = f"WITH staying AS (SELECT {own} FROM old_rows) {rows} UNION ALL {markers}"
        derived.write(target, self._new, {"old_rows": staying, "coming": coming}, query)

    @property
    def _moment(self) -> str:
        return f"TIMESTAMPTZ {literal(iso(min(self.at, END)))}"

    def _set_aside(self, names: list[str]) -> str:
        """SQL for the quarantined or late rows of both versions: those of the old one before the instant, without duplicates, and all of the new one."""
        same = " AND ".join(f"o.{quoted(n)} IS NOT DISTINCT FROM n.{quoted(n)}" for n in names if n not in _HOW)
        return (
            f"SELECT * FROM staying o WHERE _kind <> {MARKER} AND (_event_time < {self._moment} OR _event_time IS NULL) "
            f"AND NOT EXISTS (SELECT 1 FROM coming n WHERE {same}) UNION ALL SELECT * FROM coming WHERE _kind <> {MARKER}"
        )

    def _results(self) -> str:
        """SQL for the results on both sides of the instant. Results since ``since`` are renumbered."""
        old = f"SELECT * FROM staying WHERE _kind <> {MARKER} AND _event_time < {self._moment}"
        new = f"SELECT * FROM coming WHERE _kind <> {MARKER} AND _event_time >= {self._moment}"
        if self.since is None:
            return f"{old} UNION ALL {new}"
        came, progress = f"(_sequence BETWEEN {self.since} AND {BOUNDED - 1})", f"least(_progress, {self.at - 1})"
        both = (
            f"SELECT *, false AS _new FROM ({old} AND {came}) UNION ALL SELECT *, true AS _new FROM ({new} AND {came})"
        )
        number = f"{self.since} - 1 + dense_rank() OVER (ORDER BY _new, _sequence)"
        reached = (
            f"CASE WHEN _new THEN greatest(_progress, max({progress}) FILTER (NOT _new) OVER ()) ELSE {progress} END"
        )
        return (
            f"{old} AND {came} IS NOT TRUE UNION ALL {new} AND {came} IS NOT TRUE UNION ALL (SELECT * EXCLUDE (_new) "
            f"REPLACE ({number} AS _sequence, {reached} AS _progress) FROM ({both}) ORDER BY _sequence, _kind)"
        )
