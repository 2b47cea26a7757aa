"""The workers of the embedded engine for landing: this process reads, checks and writes units; Sail only computes predicates of watermarks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.connectors.judging.validation import Rules
from floodmark.connectors.unit import Reader, Unit
from floodmark.core import machine
from floodmark.engines.embedded.landing import expecting, punctuation
from floodmark.engines.embedded.landing.expecting import Expecting
from floodmark.engines.landing import judging, quarantine, spool, stamping
from floodmark.engines.landing.judging import Refused
from floodmark.engines.landing.spool import SpooledBlobs, spooled
from floodmark.engines.landing.stamping import Stamping
from floodmark.engines.landing.units import Blob, blobs_in_turn
from floodmark.lake.folder.paths import Lake, check_reached
from floodmark.lake.logs import log
from floodmark.lake.table.commits import Landing
from floodmark.lake.table.outputs import table_schema
from floodmark.lake.writing.confirmed import create_table
from floodmark.lake.writing.writer import Writer
from floodmark.spec.rows.source import Punctuated, Source
from floodmark.spec.values.schema import Schema

if TYPE_CHECKING:
    from floodmark.engines.embedded.sail.session import Sail

_READ_ROWS = 1 << 14


@dataclass(slots=True)
class EmbeddedWorkers:
    """The worker, which is this process, during one landing.

    Args:
        sail: called only if a predicate of a source is to be computed.
    """

    sail: Callable[[], Sail]
    _writers: dict[str, Writer] = field(default_factory=dict, init=False)

    def check(self, source: Source, lake: Lake) -> None:
        """Refuse a source that this engine would not land as Spark does.

        Raises:
            CapabilityError: CAPABILITY-031 a predicate that Sail computes otherwise, CAPABILITY-033 a lake that is neither on a local disk nor in a bucket.
        """
        check_reached([lake.root], f"floodmark land {source.name} --engine spark")
        punctuation.check(source)
        expecting.check(source)

    def create_log(self, source: Source, path: str) -> None:
        """As ``port.Workers``."""
        create_table(path, table_schema(source.schema), properties=log.properties(source))

    def parsed(self, reader: Reader, units: Sequence[Unit], source: Source, now: int) -> SpooledBlobs:
        """As ``port.Workers``."""

        def parse(refused: Refused) -> Iterator[Blob]:
            return blobs_in_turn(reader, units, Rules(source, now, refused))

        return self._judged(parse, source)

    def replayed(self, path: str, source: Source, now: int) -> SpooledBlobs:
        """As ``port.Workers``."""
        table = DeltaTable(path).to_pyarrow_dataset()

        def parse(refused: Refused) -> Iterator[Blob]:
            with duckdb.connect() as connection:
                rows = connection.register("quarantine", table).table("quarantine")
                rows = rows.filter(f"{quarantine.OPEN} AND _replay IS NOT NULL").order(", ".join(quarantine.ORDER))
                batches = rows.project(", ".join(quarantine.READ)).to_arrow_reader(_READ_ROWS)
                yield from quarantine.blobs_of(0, batches, Rules(source, now, refused))

        return self._judged(parse, source)

    def _judged(self, parse: Callable[[Refused], Iterator[Blob]], source: Source) -> SpooledBlobs:
        """The blobs of some units, after the expectations that the landing judges, and the predicate of the watermark.

        Args:
            parse: (refused rows) -> the blobs of the units, in which the refused rows are broken.
            source: of the units.
        """
        if not judging.criteria_of(source):
            return replace(punctuation.judged(parse, source, self.sail), writers=self._writers)
        expected = Expecting(source, self.sail())
        blobs = spooled(expected.through(parse({})))
        if expected.refused or isinstance(source.watermark, Punctuated):
            blobs.release()
            blobs = punctuation.judged(lambda later: parse(judging.after(expected.refused, later)), source, self.sail)
        return replace(blobs, reports=judging.counted(blobs.reports, expected.counts), writers=self._writers)

    def append_marker(
        self, path: str, landing: Landing, schema: Schema, plan: Stamping, *, modified: int, widen: bool
    ) -> None:
        """As ``port.Workers``."""
        rows = iter([stamping.only_marker(schema, plan)])
        writer = self._writers.setdefault(path, Writer(path))
        spool.append(writer, rows, landing, schema, modified=modified, widen=widen)

    def boundary(self, where: str, again: str) -> AbstractContextManager[None]:
        """As ``port.Workers``."""
        return machine.boundary(where, again, (DeltaError, OSError), lambda error: str(error)[:2000])
