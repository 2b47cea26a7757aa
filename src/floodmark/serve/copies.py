"""Copies: the last values of an output on the disk of the service, which follow the commits of the output's table.

A commit becomes a run of its own. Runs of like size are merged, so that there are few, and a result is written again a few times in all. The snapshot
that answers is replaced in one assignment once a commit is whole.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from floodmark.core.sql import literal, quoted
from floodmark.deliveries.follow import Log
from floodmark.deliveries.results import HAS
from floodmark.deliveries.sink import Changes
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.delivered import Delivered
from floodmark.lake.table import entries
from floodmark.lake.table.commits import BoundedRun, MicroBatch, Restored, decode
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.serve.readable import Followed
from floodmark.serve.runs import Run, write
from floodmark.serve.snapshot import AsOf, Snapshot

if TYPE_CHECKING:
    import duckdb

_RATIO = 4
"""A run is merged with the run before it unless that has so many times its rows."""
_READ = 65_536
"""Rows that are read of a query at a time."""


@dataclass(slots=True)
class Copy:
    """The copy of one output.

    Args:
        followed: the output.
        lake: of its table.
        folder: for the files of the copy.
        answers: whether snapshots answer in this process; otherwise another one opens their files, and removes them.
    """

    followed: Followed
    lake: Lake
    folder: Path
    answers: bool = True
    snapshot: Snapshot | None = field(default=None, init=False)
    """The results as of the last commit that is copied; None before the first. Replaced, never changed."""
    checked_at: int = field(default=0, init=False)
    """When the log was last seen to have no commit behind the snapshot, ms UTC."""
    _at: Delivered | None = field(default=None, init=False)
    _log: Log = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log = Log(self.followed.route, self.lake, self.folder)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the files: those of the output, and whether there is a result."""
        return arrow_schema(self.followed.output.schema).append(pa.field(HAS, pa.bool_()))

    def follow(self) -> bool:
        """Copy the next commits, if there are some. Returns False if there are none."""
        now = time.time_ns() // 1_000_000
        try:
            changes = self._next()
            if changes is None:
                self._passed()
                self.checked_at = now
                return False
            run = self._written(changes)
        except FileNotFoundError:  # a clean-up has removed files since they were listed
            self._at = None if self._at is None else replace(self._at, table="")
            return False
        self._take(run, changes)
        return True

    def at(self, version: int) -> Snapshot:
        """The results of a version of the table.

        Raises:
            FileNotFoundError, DeltaError: what the version needs was removed.
        """
        changes = self._log.whole(version)
        run = self._written(changes)
        return Snapshot(self._as_of(changes.position), (run,) if run else (), self.followed.output.schema.names)

    def _next(self) -> Changes | None:
        return self._log.next(self._at)

    def _passed(self) -> None:
        """Commits without rows behind the snapshot: only the moment changes."""
        position, snapshot = self._log.passed(self._at), self.snapshot
        if position is not None and snapshot is not None and position.version != snapshot.as_of.commit:
            self.snapshot = replace(snapshot, as_of=self._as_of(position))

    def _take(self, run: Run | None, changes: Changes) -> None:
        old = () if changes.whole or self.snapshot is None else self.snapshot.runs
        runs = self._merged([*([run] if run else ()), *old])
        if run is not None and run not in runs and not self.answers:
            run.file.unlink()  # merged at once: no other process knows of it
        self.snapshot = Snapshot(self._as_of(changes.position), tuple(runs), self.followed.output.schema.names)
        self._at = changes.position

    def _as_of(self, position: Delivered) -> AsOf:
        version, batch = self._written_by(position.version)
        return AsOf(
            output=self.followed.name,
            table=position.table,
            commit=position.version,
            committed_at=position.at,
            watermark=position.progress,
            version=version,
            batch=batch,
        )

    def _written_by(self, commit: int) -> tuple[str, int | None]:
        """(version of the operator, micro-batch) of the last commit that tells of one, up to a version."""
        path = self.lake.output(self.followed.name)
        for entry in entries.backwards(path, commit):
            record = decode(entries.commit_info(entry).get("userMetadata"), f"commit {entry.version} of table {path}")
            if isinstance(record, MicroBatch | Restored):
                return record.version, record.batch
            if isinstance(record, BoundedRun):
                return record.version, None
        return "", None

    # ---- files

    @property
    def _order(self) -> str:
        return ", ".join(f"{quoted(name)} NULLS FIRST" for name in self.followed.key_names)

    def _file(self) -> Path:
        return self.folder / f"{uuid4().hex}.arrow"

    def _written(self, changes: Changes) -> Run | None:
        """The changes as a run; None for no change."""
        assert changes.columns is not None
        return self._run(changes.columns(self.schema.names, self.followed.key_names, _READ))

    def _run(self, batches: Iterator[pa.RecordBatch]) -> Run | None:
        file = self._file()
        write(file, self.schema, batches)
        run = Run(file, self.followed.key_names, self.answers)
        return run if run.rows else None

    def _merged(self, runs: list[Run]) -> list[Run]:
        """Fewer runs with the same results, newest first."""
        count = 1
        while count < len(runs) and sum(run.rows for run in runs[:count]) * _RATIO > runs[count].rows:
            count += 1
        if count < 2:  # noqa: PLR2004 - nothing to merge
            return runs
        merged = self._run_of(runs[:count], is_oldest=count == len(runs))
        return [*([merged] if merged else ()), *runs[count:]]

    def _run_of(self, runs: list[Run], *, is_oldest: bool) -> Run | None:
        with engine(self.folder) as database:
            for age, run in enumerate(runs):
                database.register(f"run{age}", run.table)
            union = " UNION ALL ".join(f"SELECT *, {age} AS _age FROM run{age}" for age in range(len(runs)))
            keys = ", ".join(map(quoted, self.followed.key_names))
            names = ", ".join(map(quoted, self.schema.names))
            query = (
                f"SELECT {names} FROM (SELECT * FROM ({union}) QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY _age) = 1) "
                f"WHERE {HAS if is_oldest else 'true'} ORDER BY {self._order}"
            )
            return self._run(database.sql(query).to_arrow_reader(_READ))


@contextmanager
def engine(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB on one core, which spills into a folder what its share of memory does not hold."""
    import duckdb  # noqa: PLC0415 - most verbs do without

    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute(f"SET temp_directory = {literal(str(folder))}")
        database.execute("SET threads = 1")
        yield database
