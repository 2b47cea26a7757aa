"""Which units of a source have landed: a small table beside the log, behind it by a few commits at most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from floodmark.core import crash
from floodmark.lake import log
from floodmark.lake.commits import Landed, Landing
from floodmark.lake.paths import Lake

_NUMBERS = ("size", "modified", "ordinal")
_SCHEMA = pa.schema([(f.name, pa.int64() if f.name in _NUMBERS else pa.string()) for f in fields(Landed)])
_FLUSH_AFTER = 20


@dataclass(slots=True)
class LandedUnits:
    """The names a source has landed, read once per run. The log's own metadata is the truth; this saves reading all of it. No JVM."""

    path: str
    known: dict[str, Landed] = field(default_factory=dict)
    _unwritten: list[Landed] = field(default_factory=list)
    _ordinals: int = 0

    @staticmethod
    def load(lake: Lake, last: Landing) -> LandedUnits:
        """Read the table, then what the log has landed since it was last written (a crash, or simply not yet)."""
        path, log_path = lake.internal("sources", last.source, "files"), lake.log(last.source)
        units, written = LandedUnits(path), -1
        if DeltaTable.is_deltatable(path):
            rows = DeltaTable(path).to_pyarrow_table().sort_by("ordinal").to_pylist()
            units._merge(Landed(**row) for row in rows)
            written = max((row["ordinal"] for row in rows), default=-1)
        if written < last.ordinal:
            for landing in reversed(list(log.landings(log_path, after=written))):
                units.add(landing.units)
        return units

    def add(self, units: Iterable[Landed]) -> None:
        """Remember what became of units; written to the table every now and then."""
        units = list(units)
        self._merge(units)
        self._unwritten += units
        self._ordinals += 1
        if self._ordinals >= _FLUSH_AFTER:
            self.flush()

    def flush(self) -> None:
        """Write what is not written yet."""
        if self._unwritten:
            crash.point("landing.before_files")
            rows = pa.Table.from_pylist([asdict(unit) for unit in self._unwritten], schema=_SCHEMA)
            write_deltalake(self.path, rows, mode="append")
            crash.point("landing.after_files")
            self._unwritten.clear()
        self._ordinals = 0

    def _merge(self, units: Iterable[Landed]) -> None:
        self.known |= {unit.name: unit for unit in units if unit.status != "changing"}
