"""Typed commit records: one class per kind of floodmark commit, and its JSON form in Delta's ``userMetadata``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, cast

from floodmark.core.errors import StateError
from floodmark.core.time import Interval
from floodmark.lake.table.default_nulls import DefaultNulls
from floodmark.lake.table.left_out import LeftOut
from floodmark.semantics.time.stretches import Stretch
from floodmark.semantics.time.watermarks import WatermarkState
from floodmark.spec.values.run import LateRows

if TYPE_CHECKING:
    from floodmark.spec.graph.operator import Operator

Status = Literal["landed", "unreadable", "replaced", "changing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """The outcome of landing one unit.

    Args:
        name: name of the unit.
        size: its size when it was read, bytes.
        modified: its modification time when it was read, ns.
        digest: digest of its content.
        status: ``landed``: its rows are in the log; ``unreadable``: reported, and read again after the unit is replaced; ``replaced``: landed
            earlier and changed since, which is reported; ``changing``: still being written, skipped for now.
        ordinal: ordinal of the landing commit that recorded this status.
    """

    name: str
    size: int
    modified: int
    digest: str
    status: Status
    ordinal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """A landing commit of a log, with the state that the next landing commit starts from.

    Args:
        source: name of the source.
        ordinal: number of the landing commit; 0 is the first, -1 stands for none.
        next_sequence: ``_sequence`` of the first row after this commit.
        state: watermark state after this commit.
        units: units whose outcome this commit records.
        rows: rows landed by this commit.
        quarantined: rows quarantined by this commit.
        set_aside: rows quarantined by this and all earlier commits; -1 in commits of earlier versions of floodmark.
        definition: canonical form of the source.
        fingerprint: fingerprint of the source.
        run: id of the landing process; distinguishes two writers.
        ended: True if an end of input has landed.
        modified: modification time of the commit's first file, ms; increases from commit to commit even if the clock goes back. 0 in commits of
            earlier versions of floodmark.
        reopens: True if this commit removes the end of input before it.
        event_times: ranges of event time that contain all rows of the log; empty in commits of earlier versions of floodmark.
        left_out: fields of landed rows that are not in the contract.
        default_nulls: texts that were read as null by default.
        unmet: expectation -> rows of this commit that do not meet it, of those that the landing has judged and that have set no row aside.
        positions: source partition -> position up to which it has landed, of a connector that reads from positions; its next unit begins there.
        behind: source partition -> about how many rows were still to land after this commit, by the last look at the source, of a connector that
            tells it.
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
    default_nulls: DefaultNulls = field(default_factory=DefaultNulls)
    unmet: Mapping[str, int] = field(default_factory=dict)
    positions: Mapping[str, str] = field(default_factory=dict)
    behind: Mapping[str, int] = field(default_factory=dict)

    @property
    def progress(self) -> int:
        """Progress of the log: its watermark after this commit, ms."""
        return self.state.watermark

    def as_json(self) -> dict[str, Any]:
        """JSON form of the record; each unit is a list of its fields."""
        units = [[u.name, u.size, u.modified, u.digest, u.status] for u in self.units]
        return _plain(self, "state", "units", "event_times", "left_out", "default_nulls") | {
            "left_out": self.left_out.as_json(),
            "default_nulls": dict(self.default_nulls.rows),
            "event_times": [stretch.as_json() for stretch in self.event_times],
            "watermark_state": self.state.as_json(),
            "progress": self.progress,
            "units": units,
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Landing:
        """The inverse of ``as_json``."""
        units = tuple(
            Landed(name=name, size=size, modified=modified, digest=digest, status=status, ordinal=value["ordinal"])
            for name, size, modified, digest, status in value["units"]
        )
        state = WatermarkState.from_json(value["watermark_state"])
        times = tuple(Stretch.from_json(stretch) for stretch in value.get("event_times", ()))
        left_out = LeftOut.from_json(value.get("left_out", [{}, 0]))
        nulls = DefaultNulls(value.get("default_nulls", {}))
        return Landing(
            units=units,
            state=state,
            event_times=times,
            left_out=left_out,
            default_nulls=nulls,
            **_known(Landing, value),
        )


class Hottest(NamedTuple):
    """The key group with the most rows of a micro-batch."""

    group: int
    rows: int
    of: int
    """Rows of all key groups."""

    @staticmethod
    def of_rows(rows: Mapping[int, int]) -> Hottest | None:
        """(key group -> its rows) -> the one with the most; None for none."""
        group = max(rows, key=lambda group: rows[group], default=None)
        return None if group is None else Hottest(group, rows[group], sum(rows.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """A micro-batch of a stream in one of its outputs; with ``settled``, a commit that only publishes progress after the last micro-batch.

    Args:
        operator: name of the operator.
        version: version of the operator, ``name@3f9a2c1b``.
        fingerprint: fingerprint of the operator.
        timeline: number of the stream's timeline.
        table: name of the output table.
        batch: number of the micro-batch.
        progress: progress of the output after the commit, ms.
        rows: rows written, without retractions and markers.
        late: late rows of the micro-batch, over all outputs.
        dropped: rows dropped in the micro-batch.
        run: id of the process that wrote the commit.
        settled: True if the commit has no rows and publishes the stream's progress because no micro-batch follows for now.
        engine: the engine that computed the micro-batch, ``spark`` or ``embedded``; empty in commits of earlier versions of floodmark.
        restated: True if the commit restates results of this and earlier micro-batches after an upgrade.
        unmet: expectation -> rows of the commit that do not meet it, of the expectations that the run has judged before the commit; 1 for an
            expectation of one number. Those that all rows meet are left out.
        frozen: rows and retractions that were left out, as their event time is frozen.
        rows_in: rows that the micro-batch read, markers included; 0 in commits of earlier versions of floodmark.
        metrics: metric of a process function -> what the micro-batch has observed of it; in the main output's commit.
        hottest: the key group with the most rows of the micro-batch; in the main output's commit.
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
    unmet: Mapping[str, int] = field(default_factory=dict)
    frozen: int = 0
    rows_in: int = 0
    metrics: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    hottest: Hottest | None = None

    @staticmethod
    def of(operator: Operator, table: str, **values: Any) -> MicroBatch:
        """Create the record of an operator's micro-batch.

        Args:
            operator: the stream's operator; supplies name, version and fingerprint.
            table: name of the output table.
            values: the other fields; those without a default are required.
        """
        name, version, fingerprint = operator.name, operator.version, operator.fingerprint
        return MicroBatch(operator=name, version=version, fingerprint=fingerprint, table=table, **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedRun:
    """A bounded run in one of its outputs.

    Args:
        operator: name of the operator.
        version: version of the operator.
        fingerprint: fingerprint of the operator.
        table: name of the output table.
        interval: event time that was computed.
        late_rows: how late rows were treated, ``as_landed`` or ``all``.
        inputs: input table -> {``version``: table version that was read}.
        rows: rows written, without retractions.
        retractions: retractions written.
        late: late rows; counted only in the main output's commit.
        dropped: dropped rows; counted only in the main output's commit.
        run: id of the process that wrote the commit.
        engine: as in ``MicroBatch``.
        unmet: as in ``MicroBatch``.
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
    unmet: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """JSON form of the record; the interval as ``from`` and ``to``, ms."""
        return _plain(self, "interval") | {"from": self.interval.start, "to": self.interval.end}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> BoundedRun:
        """The inverse of ``as_json``."""
        return BoundedRun(interval=Interval(start=value["from"], end=value["to"]), **_known(BoundedRun, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The replacement of a table's contents by a rollback, a rebuild or a fork.

    Args:
        mode: the action that replaced the contents.
        operator: name of the operator.
        version: version of the operator that resumes.
        timeline: number of the timeline that begins.
        table: name of the table.
        restored: the table version whose contents were restored; -1 if the contents come from another table.
        savepoint: id of the savepoint the stream resumes from.
        batch: micro-batch of the savepoint.
        progress: progress of the table, ms.
        difference: the version at whose end a reader of the commits has read the replaced contents: the commit with the difference between the
            contents before and after; -1 if there is none.
        followers: versions of the operators whose streams read on behind ``difference``, ``name@3f9a2c1b``; all others are computed anew.
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
    difference: int = -1
    followers: tuple[str, ...] = ()

    def follows(self, version: str, read: int) -> bool:
        """(version of an operator, the table version its stream has read) -> True if the stream can read on behind the replacement.

        A stream that has read the difference may have been upgraded since.
        """
        if read >= self.difference >= 0:
            version, followers = version.partition("@")[0], {one.partition("@")[0] for one in self.followers}
            return version in followers
        return self.difference >= 0 and version in self.followers


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """The end of a timeline in a table: later commits of its driver are refused.

    Args:
        operator: name of the operator.
        timeline: number of the ended timeline.
    """

    operator: str
    timeline: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """The removal of files of old table versions. Afterwards the table cannot be read commit by commit from its first version.

    Args:
        before: versions before this one may lack files. A later clean-up may have removed files of later versions too.
    """

    before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """A compaction: files were merged and redundant markers removed. No row changed.

    Args:
        files: number of files that were removed.
    """

    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """Rows of a key were removed from a log or a quarantine. All streams that had read them are computed anew.

    Args:
        rows: number of rows that were removed.
    """

    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Revised:
    """From this commit on, a stream's rows take back rows of any event time: it follows the rebuild of a stream that it reads, as a difference.

    Args:
        operator: name of the operator that was rebuilt.
        version: version of the operator after the rebuild.
    """

    operator: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Processing time of a micro-batch, in the table ``ticks``.

    Args:
        operator: name of the operator.
        batch: number of the micro-batch.
    """

    operator: str
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One step of a comparison, in the table of its windows.

    Args:
        step: number of the step, from 1.
    """

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A change of a source's quarantine by a landing commit, which quarantines rows or replays them.

    Args:
        source: name of the source.
        ordinal: ordinal of the landing commit; that of its predecessor if the commit removes quarantined rows of a landing commit that failed.
    """

    source: str
    ordinal: int


Record = (
    Landing
    | MicroBatch
    | BoundedRun
    | Restored
    | Fenced
    | Cleaned
    | Compacted
    | Forgotten
    | Revised
    | Ticked
    | Compared
    | SetAside
)
"""Any commit record."""
_PLAIN = MappingProxyType(
    {
        "fence": Fenced,
        "cleaned": Cleaned,
        "compacted": Compacted,
        "forgotten": Forgotten,
        "revised": Revised,
        "compared": Compared,
        "set_aside": SetAside,
    }
)
"""Name in ``userMetadata`` -> class of the records that are written field by field."""


def progress_of(record: Record | None) -> int | None:
    """Progress of a table according to a record, ms; None if the record carries no progress."""
    return record.progress if isinstance(record, Landing | MicroBatch | Restored) else None


def encode(record: Record) -> str:
    """The record as ``userMetadata``: JSON under ``landing``, ``fence``, ``cleaned``, ``compacted``, ``forgotten``, ``revised``, ``compared``, ``set_aside`` or ``floodmark``."""
    name = next((name for name, kind in _PLAIN.items() if isinstance(record, kind)), None)
    if name is not None:
        return _text({name: _plain(record)})
    match record:
        case Landing():
            value: dict[str, Any] = {"landing": record.as_json()}
        case BoundedRun():
            value = {"floodmark": {"mode": record.mode, **record.as_json()}}
        case MicroBatch():
            value = {"floodmark": {"mode": record.mode, **_plain(record)}}
        case _:
            value = {"floodmark": _plain(record)}
    return _text(value)


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def decode(text: str | None, where: str) -> Record | None:
    """Decode the record of a commit. Returns None for commits of other programs, such as an OPTIMIZE.

    Args:
        text: the commit's ``userMetadata``.
        where: description of the commit, for the error.

    Raises:
        StateError: STATE-040, floodmark wrote the record, but this version cannot read it.
    """
    try:
        value = json.loads(text) if text and text.startswith("{") else {}
    except ValueError:
        return None
    try:
        match value:
            case {"landing": dict(landing)}:
                return Landing.from_json(landing)
            case {"floodmark": dict(record)}:
                return _decoded(record)
        for name, kind in _PLAIN.items():
            if isinstance(fields_ := value.get(name), dict):
                return cast("Record", kind(**_known(kind, fields_)))
    except (KeyError, TypeError, ValueError) as error:
        got = f"one that lacks {error}" if isinstance(error, KeyError) else f"another one: {error}"
        fix = "A newer floodmark has written it: pip install --upgrade floodmark"
        raise StateError(where, "a record this version of floodmark reads", got, fix, code="STATE-040") from error
    return None


def _decoded(value: Mapping[str, Any]) -> Record:
    match value.get("mode"):
        case "unbounded":
            known = _known(MicroBatch, value)
            hottest = known.get("hottest")
            return MicroBatch(**known | {"hottest": None if hottest is None else Hottest(*hottest)})
        case "bounded":
            return BoundedRun.from_json(value)
        case "rollback" | "rebuild" | "fork":
            known = _known(Restored, value)
            return Restored(**known | {"followers": tuple(known.get("followers", ()))})
        case None:
            return Ticked(**_known(Ticked, value))
        case other:
            raise ValueError(f"mode '{other}'")


def _plain(record: Any, *without: str) -> dict[str, Any]:
    """Field name -> value of a record, except the named fields, which have their own JSON form."""
    return {one.name: getattr(record, one.name) for one in fields(record) if one.name not in without}


def _known(kind: Any, value: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments for a record class from its JSON. Ignores keys of later versions, and fields with their own JSON form.

    Raises:
        KeyError: a field without default is missing.
    """
    formed = {"state", "units", "event_times", "left_out", "default_nulls", "interval"}
    known: list[Field[Any]] = [one for one in fields(kind) if one.name not in formed]
    optional = {one.name for one in known if one.default is not MISSING or one.default_factory is not MISSING}
    return {one.name: value[one.name] for one in known if one.name in value or one.name not in optional}
