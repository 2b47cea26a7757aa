"""The preview of a bounded run: what it would compute, read, replace and take. Computes and writes nothing, and needs no engine."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from floodmark.core.time import Interval, Intervals
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import costs
from floodmark.lake.results.extent import Extent, extent
from floodmark.lake.results.frozen import frozen
from floodmark.lake.results.needs import reads, scans
from floodmark.lake.results.parts import Part, counted, parts
from floodmark.lake.results.readiness import coverage, readiness, replaced
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table import entries
from floodmark.lifecycle.rate import Rate
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import LateRows
from floodmark.spec.windowing.partitions import split

_MOST_PIECES = 100_000
_MINUTE = 60
_UNITS = ("bytes", "KB", "MB", "GB", "TB")
_THOUSAND = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """An operator that reads what a run would replace.

    Args:
        operator: its name.
        partitions: number of its computed asset partitions, or stretches without partitions, that become stale.
        stream: True if it has a stream, which does not read what bounded runs write.
    """

    operator: str
    partitions: int
    stream: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a bounded run of one operator would do.

    Args:
        operator: name of the operator.
        version: its version.
        interval: the event time that is asked for.
        partitions: state -> number of asset partitions, as of ``parts.counted``; empty without partitions.
        missing: stretches that the run computes.
        reads: files, rows and bytes of the inputs, over all stretches.
        replaces: files, rows and bytes of the outputs that the run removes or writes anew.
        unknown: inputs that the same run computes first, so that what is read of them now is no more than an estimate.
        seconds: expected duration; None without a past run on the engine, of this operator and of those that are computed first.
        rows_written: expected rows; None without a past run.
        size_written: expected bytes; None without a past run.
        past_runs: number of past runs behind the expectations.
        readers: the operators downstream.
        free: free bytes on the lake's disk; None if unknown.
        reasons: for people, why a stretch is skipped or computed again.
    """

    operator: str
    version: str
    interval: Interval
    partitions: Mapping[str, int]
    missing: tuple[Interval, ...]
    reads: Extent = field(default_factory=Extent)
    replaces: Extent = field(default_factory=Extent)
    unknown: tuple[str, ...] = ()
    seconds: float | None = None
    rows_written: int | None = None
    size_written: int | None = None
    past_runs: int = 0
    readers: tuple[Touched, ...] = ()
    free: int | None = None
    reasons: tuple[str, ...] = ()

    @property
    def rows_added(self) -> int | None:
        """Rows by which the outputs are expected to grow; None without a past run."""
        return None if self.rows_written is None else max(0, self.rows_written - self.replaces.rows)

    @property
    def crowded(self) -> bool:
        """True if more bytes are expected than are free."""
        return self.free is not None and self.size_written is not None and self.size_written > self.free

    def lines(self) -> list[str]:
        """For people, one fact a line; the first line says the most."""
        about = ", ".join(f"{count:,} {_WORDS[state]}" for state, count in self.partitions.items())
        head = f"{self.version} over {self.interval}" + (f": {about}" if about else "")
        if not self.missing:
            return [f"{head}; nothing to compute"]
        qualified = f" (an estimate: {', '.join(self.unknown)} is computed first)" if self.unknown else ""
        lines = [
            f"{head}; {self._duration()}",
            f"reads {_amount(self.reads)}{qualified}",
            f"replaces {_amount(self.replaces)}" if self.replaces.files else "replaces nothing",
        ]
        disk = "" if self.free is None else f"; {_bytes(self.free)} are free"
        if self.rows_written is None or self.size_written is None:
            lines.append(f"writes: not known, as no run {self._unrecorded}{disk}")
        else:
            expected = f"writes some {self.rows_written:,} rows, {_bytes(self.size_written)}"
            lines.append(f"{expected}{disk}{': not enough' if self.crowded else ''}")
        for reader in self.readers:
            stale = (
                f"{reader.partitions:,} computed {'partition' if reader.partitions == 1 else 'partitions'} become stale"
            )
            stream = "; its stream does not read what bounded runs write" if reader.stream else ""
            lines.append(f"read by {reader.operator}: {stale}{stream}")
        return lines

    def _duration(self) -> str:
        if self.seconds is None:
            return f"duration not known, as no run {self._unrecorded} on this engine"
        runs = f"by {self.past_runs:,} past {'run' if self.past_runs == 1 else 'runs'}"
        took = f"{self.seconds / _MINUTE:.1f} minutes" if self.seconds >= _MINUTE else f"{self.seconds:.1f} s"
        return f"some {took}, {runs}"

    @property
    def _unrecorded(self) -> str:
        return "of what is computed first is recorded" if self.past_runs else "is recorded"

    def as_json(self) -> dict[str, Any]:
        """JSON form."""
        words = {
            "interval": str(self.interval),
            "missing": [str(piece) for piece in self.missing],
            "partitions": dict(self.partitions),
        }
        return asdict(replace(self, partitions={})) | words | {"crowded": self.crowded}


_WORDS = {
    "missing": "missing",
    "stale": "stale",
    "stream": "written by the stream",
    "covered": "covered already",
    "frozen": "frozen",
    "gated": "held by a gate",
    "open": "not complete yet",
}


def preview(
    operator: Operator,
    lake: Lake,
    interval: Interval,
    *,
    engine: str,
    operators: Iterable[Operator] = (),
    late_rows: LateRows = "as_landed",
    force: bool = False,
    first: Mapping[str, Preview] = MappingProxyType({}),
) -> Preview:
    """The preview of a bounded run.

    Args:
        operator: the operator to compute.
        lake: the lake of its tables.
        interval: the event time that is asked for.
        engine: the engine of the run.
        operators: all operators of the workspace, to find those downstream.
        late_rows: as of the run.
        force: as of the run.
        first: input table -> the preview of the operator that the same run computes before this one, and that writes the table.

    Raises:
        FloodmarkError: as ``readiness``: what the run would be refused for.
        FileNotFoundError: a file of an input is gone.
    """
    absent = [i.table for i in operator.inputs if i.table in first and not entries.is_table(lake.input(i))]
    if absent:
        return Preview(
            operator=operator.name,
            version=operator.version,
            interval=interval,
            partitions={"missing": len(_pieces(operator, interval))},
            missing=(interval,),
            unknown=tuple(absent),
            free=_free(lake),
        )
    ready = readiness(operator, lake, interval, late_rows=late_rows, force=force, frozen_too=True)
    before = {table: upstream.missing for table, upstream in first.items()}
    missing, unknown = _behind(operator, interval, ready.todo.missing, before)
    frozen_range = frozen(lake, operator.name)
    missing = [
        left for piece in missing for left in (piece.minus([frozen_range.interval]) if frozen_range else [piece])
    ]
    every = list[Part]()
    if operator.partitions is not None and not interval.everything:
        every = list(parts(operator, operator.partitions, lake, interval, late_rows=late_rows))
    held = [part.interval for part in every if part.gated]
    missing = [left for piece in missing for left in piece.minus(held)]
    made = Preview(
        operator=operator.name,
        version=operator.version,
        interval=interval,
        partitions=counted(every),
        missing=tuple(missing),
        unknown=tuple(unknown),
        readers=tuple(_readers(operator, lake, missing, operators, late_rows)),
        free=_free(lake),
        reasons=ready.todo.reasons,
    )
    read = sum((costs.reads(operator, lake, piece, ready.versions) for piece in missing), Extent())
    old = sum((_old(operator, lake, piece) for piece in missing), Extent())
    rate = Rate.of([cost for cost in costs.past(lake, operator.name) if cost.engine == engine])
    made = replace(made, reads=read, replaces=old)
    added = {first[table].operator: first[table].rows_added for table in unknown}
    if rate is None or not missing:
        return made
    if None in added.values():
        return replace(made, past_runs=rate.runs)
    rows = read.rows + sum(filter(None, added.values()))
    return replace(
        made,
        seconds=rate.seconds(rows, len(missing)),
        rows_written=round(rate.rows_per_row * rows),
        size_written=round(rate.size_per_row * rows),
        past_runs=rate.runs,
    )


def chain(
    runs: Iterable[tuple[Operator, Interval]],
    lake: Lake,
    *,
    engine: str,
    operators: Iterable[Operator] = (),
    late_rows: LateRows = "as_landed",
    force: bool = False,
) -> list[Preview]:
    """The previews of bounded runs of several operators one after the other, each over an interval, upstream first; arguments as of ``preview``."""
    asked = list(runs)
    previews, first = list[Preview](), dict[str, Preview]()
    computed = {operator.name for operator, _ in asked}
    others = [reader for reader in operators if reader.name not in computed]
    for operator, interval in asked:
        made = preview(
            operator, lake, interval, engine=engine, operators=others, late_rows=late_rows, force=force, first=first
        )
        first |= {output.table: made for output in operator.outputs if made.missing}
        previews.append(made)
    return previews


def _behind(
    operator: Operator,
    interval: Interval,
    missing: Sequence[Interval],
    first: Mapping[str, tuple[Interval, ...]],
) -> tuple[list[Interval], list[str]]:
    """(stretches to compute once the same run has computed stretches of inputs, the names of these inputs)."""
    wanted, unknown = Intervals(), list[str]()
    for piece in missing:
        wanted.add(piece)
    for input_ in operator.inputs:
        before = first.get(input_.table, ())
        if not any(map(scans(operator, interval).meets, before)):
            continue
        unknown.append(input_.table)
        for piece in _pieces(operator, interval):
            if any(map(reads(operator, piece).meets, before)):
                wanted.add(piece)
    return ([interval] if operator.spans_interval and unknown else wanted.ranges()), unknown


def _pieces(operator: Operator, interval: Interval) -> list[Interval]:
    """The parts of an interval that become stale one by one: its asset partitions; all of it without partitions, or if there are too many."""
    if operator.partitions is None or interval.everything:
        return [interval]
    pieces = [
        Interval(start=max(interval.start, piece.start), end=min(interval.end, piece.end))
        for _, piece in islice(split(operator.partitions, interval), _MOST_PIECES + 1)
    ]
    return pieces if len(pieces) <= _MOST_PIECES else [interval]


def _old(operator: Operator, lake: Lake, piece: Interval) -> Extent:
    """What the run over a stretch removes from all tables, or writes anew."""
    gone, total = replaced(operator, lake, piece), Extent()
    for output in operator.outputs:
        total += extent(lake.output(output.table), gone, opened=False)
        if output.current is not None:
            total += extent(lake.output(output.current.table), piece, opened=False)
    return total


def _readers(
    operator: Operator, lake: Lake, missing: Sequence[Interval], operators: Iterable[Operator], late_rows: LateRows
) -> Iterator[Touched]:
    """The operators downstream, each with what becomes stale of it."""
    changed = {output.table: list(missing) for output in operator.outputs}
    for reader in operators if missing else ():
        stretches = [stretch for input_ in reader.inputs for stretch in changed.get(input_.table, ())]
        if not stretches:
            continue
        stale = list[Interval]()
        read = [lake.output(reader.outputs[0].table), *(lake.input(input_) for input_ in reader.inputs)]
        if all(map(entries.is_table, read)):
            computed = [
                segment.interval
                for segment in coverage(reader, lake, Interval(), late_rows=late_rows)
                if not segment.stale
            ]
            pieces = [piece for segment in computed for piece in _pieces(reader, segment)]
            stale = [piece for piece in pieces if any(map(reads(reader, piece).meets, stretches))]
        for output in reader.outputs:
            changed[output.table] = stale
        deployed = Timeline.current(lake, reader.name).identity.deployed() is not None
        if stale or deployed:
            yield Touched(operator=reader.name, partitions=len(stale), stream=deployed)


def _free(lake: Lake) -> int | None:
    """Free bytes on the lake's disk; None for a lake that is not on a local disk."""
    if not lake.is_local:
        return None
    folder = Path(lake.root)
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _amount(extent: Extent) -> str:
    return f"{extent.files:,} {'file' if extent.files == 1 else 'files'}, {extent.rows:,} rows, {_bytes(extent.size)}"


def _bytes(size: float) -> str:
    for unit in _UNITS[:-1]:
        if size < _THOUSAND:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= _THOUSAND
    return f"{size:,.1f} {_UNITS[-1]}"
