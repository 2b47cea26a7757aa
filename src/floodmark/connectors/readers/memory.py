"""Reader of rows in memory, for tests and examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from floodmark.connectors.entries import Record
from floodmark.connectors.unit import NOWHERE, Pending, Reader, Unit, of_last_commit
from floodmark.core.errors import ConnectorError
from floodmark.core.fingerprint import digest
from floodmark.lake.table.commits import Landed
from floodmark.spec.rows.connector import Rows
from floodmark.spec.rows.source import Source


@dataclass(frozen=True, slots=True)
class MemoryReader(Reader):
    """Lands a list of rows once; a longer list that begins with the same rows lands the rest."""

    settings: Rows
    source: str

    def pending(
        self,
        landed: Mapping[str, Landed],
        positions: Mapping[str, str] = NOWHERE,  # noqa: ARG002 - its units have names
    ) -> Pending:
        """All rows after those that landed, as one unit.

        Raises:
            ConnectorError: CONNECTOR-001, the list no longer begins with the rows that landed.
        """
        rows = self.settings.rows
        newest = of_last_commit(landed)
        landed_rows = max((int(name.rpartition("-")[2]) for name in newest), default=0)
        last = next((unit for name, unit in newest.items() if name.endswith(f"-{landed_rows}")), None)
        if last is not None and (landed_rows > len(rows) or digest(rows[:landed_rows]) != last.digest):
            fix = "Rows only grow at their end; give a source with other rows another name, or use a new lake."
            got = f"{len(rows)} rows that differ from them"
            raise ConnectorError(
                f"source '{self.source}'", f"the {landed_rows} rows that landed, first", got, fix, code="CONNECTOR-001"
            )
        return Pending([Unit(name=f"rows {landed_rows + 1}-{len(rows)}")] if landed_rows < len(rows) else [])

    def open(self, unit: Unit) -> _Rows:
        """The rows of a unit."""
        return _Rows(self.settings.rows, *(int(part) for part in unit.name.removeprefix("rows ").split("-")))


def reader(settings: Rows, source: Source) -> MemoryReader:
    """The reader of a source of rows in memory."""
    return MemoryReader(settings, source.name)


@dataclass(slots=True)
class _Rows:
    rows: tuple[str, ...]
    first: int
    last: int
    form: Literal["json"] = field(default="json", init=False)
    replay: str | None = field(default='{"format": "json"}', init=False)
    left_out: None = field(default=None, init=False)
    position: str = field(default="", init=False)
    default_nulls: Mapping[str, int] = field(default_factory=dict, init=False)

    def records(self) -> Iterator[Record]:
        for position in range(self.first, self.last + 1):
            text = self.rows[position - 1].encode()
            yield Record(position, text, text)

    def fingerprint(self) -> tuple[int, str]:
        return 0, digest(self.rows[: self.last])
