"""What a commit of floodmark's says of itself: one record per kind of commit, and its form in the commit's ``userMetadata``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from floodmark.core.errors import StateError
from floodmark.core.time import Interval
from floodmark.lake.left_out import LeftOut
from floodmark.semantics.stretches import Stretch
from floodmark.semantics.watermarks import WatermarkState
from floodmark.spec.run import LateRows

if TYPE_CHECKING:
    from floodmark.spec.operator import Operator

Status = Literal["landed", "unreadable", "replaced", "changing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """What became of a unit.

    Args:
        name: of the unit.
        size: bytes, when it was read.
        modified: ns, when it was read.
        digest: of its content.
        status: ``landed``; ``unreadable``: reported, and pending again once it is replaced; ``replaced``: landed, and reported
            because it has changed since; ``changing``: it was being written, nothing happened.
        ordinal: of the landing commit that decided it.
    """

    name: str
    size: int
    modified: int
    digest: str
    status: Status
    ordinal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """A landing commit of a log, and the state from which the next one goes on.

    Args:
        source: name.
        ordinal: 0 is the first commit.
        next_sequence: of the first row after it.
        state: watermarks after it.
        units: what became of them in this commit.
        rows: landed by it.
        quarantined: by it.
        set_aside: by it and all before it; -1 in commits of versions before.
        definition: the canonical form of the source.
        fingerprint: of the source.
        run: of the landing that wrote it, to tell two writers apart.
        ended: an end of input has been landed.
        modified: modification time of its first file, ms; it grows from commit to commit, whatever the clock says. 0 in commits of versions before.
        reopens: it takes back the end of input before it.
        event_times: stretches of event time in which all rows of the log lie; empty in commits of versions before.
        left_out: fields of its rows that the contract does not name.
    """

    source: str
    ordinal: int = -1
    next_sequence: int = 0
    state: WatermarkState = field(default_factory=WatermarkState)
    units: tuple[Landed, ...] = ()
    rows: int = 0
    quarantined: int = 0
    set_aside: int = -1
    definition: dict[str, Any] | None = None
    fingerprint: str = ""
    run: str = ""
    ended: bool = False
    modified: int = 0
    reopens: bool = False
    event_times: tuple[Stretch, ...] = ()
    left_out: LeftOut = field(default_factory=LeftOut)

    @property
    def progress(self) -> int:
        """How far the log has got, ms."""
        return self.state.watermark

    def as_json(self) -> dict[str, Any]:
        """Of the fields; units and stretches as lists."""
        units = [[u.name, u.size, u.modified, u.digest, u.status] for u in self.units]
        return _plain(self, "state", "units", "event_times", "left_out") | {
            "left_out": self.left_out.as_json(),
            "event_times": [stretch.as_json() for stretch in self.event_times],
            "watermark_state": self.state.as_json(),
            "progress": self.progress,
            "units": units,
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Landing:
        """From what ``as_json`` gives."""
        units = tuple(
            Landed(name=name, size=size, modified=modified, digest=digest, status=status, ordinal=value["ordinal"])
            for name, size, modified, digest, status in value["units"]
        )
        state = WatermarkState.from_json(value["watermark_state"])
        times = tuple(Stretch.from_json(stretch) for stretch in value.get("event_times", ()))
        left_out = LeftOut.from_json(value.get("left_out", [{}, 0]))
        return Landing(units=units, state=state, event_times=times, left_out=left_out, **_known(Landing, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """A micro-batch of a stream in one of its outputs; or, ``settled``, the marker behind the last one.

    Args:
        operator: name.
        version: of the operator, ``name@3f9a2c1b``.
        fingerprint: of the operator.
        timeline: of the stream.
        table: the output.
        batch: number of the micro-batch.
        progress: of the output, ms.
        rows: written, without retractions and markers.
        late: rows that were late in the micro-batch, of all outputs.
        dropped: rows that were dropped in it.
        run: of the process that wrote it.
        settled: the commit has no rows: it says how far the stream is, with nothing behind it.
        engine: what computed it, ``spark`` or ``embedded``; empty in commits of versions before.
        restated: the commit restates results of it and of micro-batches before it, behind an upgrade.
    """

    mode: ClassVar[str] = "unbounded"

    operator: str
    version: str
    timeline: int
    table: str
    batch: int
    progress: int
    rows: int = 0
    late: int = 0
    dropped: int = 0
    fingerprint: str = ""
    run: str = ""
    settled: bool = False
    engine: str = ""
    restated: bool = False

    @staticmethod
    def of(operator: Operator, table: str, **values: Any) -> MicroBatch:
        """One of an operator.

        Args:
            operator: whose stream it is.
            table: the output.
            values: all others that have no default, and any of those that have one.
        """
        name, version, fingerprint = operator.name, operator.version, operator.fingerprint
        return MicroBatch(operator=name, version=version, fingerprint=fingerprint, table=table, **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedRun:
    """A bounded run in one of its outputs.

    Args:
        operator: name.
        version: of the operator.
        fingerprint: of the operator.
        table: the output.
        interval: of event time that was computed.
        late_rows: how late rows were treated.
        inputs: input table -> ``version`` that was read.
        rows: written, without retractions.
        retractions: written.
        late: rows that were late; only in the main output.
        dropped: rows that were dropped; only in the main output.
        run: of the process that wrote it.
        engine: as in ``MicroBatch``.
    """

    mode: ClassVar[str] = "bounded"

    operator: str
    version: str
    fingerprint: str
    table: str
    interval: Interval
    late_rows: LateRows
    inputs: Mapping[str, Mapping[str, Any]]
    rows: int = 0
    retractions: int = 0
    late: int = 0
    dropped: int = 0
    run: str = ""
    engine: str = ""

    def as_json(self) -> dict[str, Any]:
        """Of the fields; the interval as ``from`` and ``to``, ms."""
        return _plain(self, "interval") | {"from": self.interval.start, "to": self.interval.end}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> BoundedRun:
        """From what ``as_json`` gives."""
        return BoundedRun(interval=Interval(start=value["from"], end=value["to"]), **_known(BoundedRun, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A table that was put in place of what it was: by a rollback, a rebuild or a fork.

    Args:
        mode: which of them.
        operator: name.
        version: of the operator that goes on.
        timeline: that begins.
        table: its name.
        restored: the version that came back; -1 where all rows are other ones.
        savepoint: id of the one its stream goes on from.
        batch: micro-batch of the savepoint.
        progress: of the table, ms.
    """

    mode: Literal["rollback", "rebuild", "fork"]
    operator: str
    version: str
    timeline: int
    table: str
    restored: int
    savepoint: str
    batch: int
    progress: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """The end of a timeline in a table: its driver can commit nothing there any more.

    Args:
        operator: name.
        timeline: that has ended.
    """

    operator: str
    timeline: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """Files of old versions of a table were removed: its rows cannot be read commit by commit from the first one on.

    Args:
        before: the version, before which versions may lack files; later ones may by now.
    """

    before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """Files of a table were merged, and old markers have gone: no row has changed.

    Args:
        files: that were taken out.
    """

    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Where the clock stood in a micro-batch.

    Args:
        operator: name.
        batch: number of the micro-batch.
    """

    operator: str
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A step of a comparison, in the table of its windows.

    Args:
        step: number, from 1 on.
    """

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A landing commit that sets rows aside, or replays some, in the quarantine of its source.

    Args:
        source: its name.
        ordinal: of the landing commit; of the one before where the quarantine's rows of a landing commit that never came were removed.
    """

    source: str
    ordinal: int


Record = Landing | MicroBatch | BoundedRun | Restored | Fenced | Cleaned | Compacted | Ticked | Compared | SetAside
"""What a commit says of itself."""


def progress_of(record: Record | None) -> int | None:
    """How far the table has got by a record, ms; None where the record does not say."""
    return record.progress if isinstance(record, Landing | MicroBatch | Restored) else None


def encode(record: Record) -> str:
    """The record as ``userMetadata``: JSON under ``landing``, ``fence``, ``cleaned``, ``compacted``, ``compared``, ``set_aside`` or ``floodmark``."""
    match record:
        case Landing():
            value: dict[str, Any] = {"landing": record.as_json()}
        case Fenced():
            value = {"fence": _plain(record)}
        case Cleaned():
            value = {"cleaned": _plain(record)}
        case Compacted():
            value = {"compacted": _plain(record)}
        case Compared():
            value = {"compared": _plain(record)}
        case SetAside():
            value = {"set_aside": _plain(record)}
        case BoundedRun():
            value = {"floodmark": {"mode": record.mode, **record.as_json()}}
        case MicroBatch():
            value = {"floodmark": {"mode": record.mode, **_plain(record)}}
        case _:
            value = {"floodmark": _plain(record)}
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def decode(text: str | None, where: str) -> Record | None:
    """The record of a commit; None for commits of others, such as an OPTIMIZE.

    Args:
        text: the commit's ``userMetadata``.
        where: the commit, for the error.

    Raises:
        StateError: STATE-040, floodmark wrote it, and this version cannot read it.
    """
    try:
        value = json.loads(text) if text and text.startswith("{") else {}
    except ValueError:
        return None
    try:
        match value:
            case {"landing": dict(landing)}:
                return Landing.from_json(landing)
            case {"fence": dict(fence)}:
                return Fenced(**_known(Fenced, fence))
            case {"cleaned": dict(cleaned)}:
                return Cleaned(**_known(Cleaned, cleaned))
            case {"compacted": dict(compacted)}:
                return Compacted(**_known(Compacted, compacted))
            case {"compared": dict(compared)}:
                return Compared(**_known(Compared, compared))
            case {"set_aside": dict(noted)}:
                return SetAside(**_known(SetAside, noted))
            case {"floodmark": dict(record)}:
                return _decoded(record)
    except (KeyError, TypeError, ValueError) as error:
        got = f"one that lacks {error}" if isinstance(error, KeyError) else f"another one: {error}"
        fix = "A newer floodmark has written it: pip install --upgrade floodmark"
        raise StateError(where, "a record this version of floodmark reads", got, fix, code="STATE-040") from error
    return None


def _decoded(value: Mapping[str, Any]) -> Record:
    match value.get("mode"):
        case "unbounded":
            return MicroBatch(**_known(MicroBatch, value))
        case "bounded":
            return BoundedRun.from_json(value)
        case "rollback" | "rebuild" | "fork":
            return Restored(**_known(Restored, value))
        case None:
            return Ticked(**_known(Ticked, value))
        case other:
            raise ValueError(f"mode '{other}'")


def _plain(record: Any, *without: str) -> dict[str, Any]:
    """Fields and values of a record, but those that have a form of their own."""
    return {one.name: getattr(record, one.name) for one in fields(record) if one.name not in without}


def _known(kind: Any, value: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the fields of a kind of record; those a later version has added are left out.

    Raises:
        KeyError: a field is missing.
    """
    formed = {"state", "units", "event_times", "left_out", "interval"}
    known: list[Field[Any]] = [one for one in fields(kind) if one.name not in formed]
    optional = {one.name for one in known if one.default is not MISSING or one.default_factory is not MISSING}
    return {one.name: value[one.name] for one in known if one.name in value or one.name not in optional}
