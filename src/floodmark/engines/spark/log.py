"""The landing log: its table, what the last landing commit says, and whether a source still fits it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import deltalake
from delta.tables import DeltaTable

from floodmark.connectors.unit import Landed
from floodmark.core.errors import PlanError, StateError
from floodmark.semantics.watermarks import WatermarkState
from floodmark.spec.schema import STAMP_DDL
from floodmark.spec.source import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INDEXED = 32
"""Columns Delta keeps statistics for by itself; the stamps stand last and need them most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """One landing commit, as its metadata tells it; the state from which the next one goes on.

    Args:
        source: name.
        ordinal: 0 is the first commit.
        next_sequence: of the first row after it.
        state: watermarks after it.
        units: what became of them in this commit.
        rows: landed by it.
        quarantined: by it.
        definition: the canonical form of the source.
        run: of the landing that wrote it, to tell two writers apart.
        ended: an end of input has been landed.
    """

    source: str
    ordinal: int = -1
    next_sequence: int = 0
    state: WatermarkState = field(default_factory=WatermarkState)
    units: tuple[Landed, ...] = ()
    rows: int = 0
    quarantined: int = 0
    definition: dict[str, object] | None = None
    run: str = ""
    ended: bool = False

    def metadata(self, fingerprint: str) -> str:
        """For ``userMetadata``."""
        units = [[u.name, u.size, u.modified, u.digest, u.status] for u in self.units]
        plain = ("source", "ordinal", "next_sequence", "rows", "quarantined", "definition", "run", "ended")
        values = {name: getattr(self, name) for name in plain}
        more = {
            "watermark_state": self.state.as_json(),
            "progress": self.state.watermark,
            "units": units,
            "fingerprint": fingerprint,
        }
        return json.dumps({"landing": values | more}, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def from_metadata(text: str | None) -> Landing | None:
        """None for commits of others (an OPTIMIZE, a changed property)."""
        value: dict[str, Any] | None = json.loads(text).get("landing") if text and text.startswith("{") else None
        if value is None:
            return None
        units = tuple(
            Landed(name=name, size=size, modified=modified, digest=digest, status=status, ordinal=value["ordinal"])
            for name, size, modified, digest, status in value["units"]
        )
        plain = ("source", "ordinal", "next_sequence", "rows", "quarantined", "definition", "run", "ended")
        state = WatermarkState.from_json(value["watermark_state"])
        return Landing(units=units, state=state, **{name: value[name] for name in plain})


def exists(spark: SparkSession, path: str) -> bool:
    """True when there is a Delta table."""
    return DeltaTable.isDeltaTable(spark, path)


def create(spark: SparkSession, path: str, source: Source) -> None:
    """Create the empty log of a source."""
    table = DeltaTable.createIfNotExists(spark).location(path)
    for column in source.schema.columns:
        table = table.addColumn(column.name, column.type, comment=column.description or None)
    for stamp in STAMP_DDL.split(", "):
        name, kind = stamp.split(" ")
        table = table.addColumn(name.strip("`"), kind)
    columns = len(source.schema.columns) + 6
    properties = {
        "delta.checkpointInterval": "100",
        "floodmark.granularity": source.granularity,
        "floodmark.source": source.fingerprint,
        **({"delta.dataSkippingNumIndexedCols": str(columns)} if columns > _INDEXED else {}),
    }
    for key, value in properties.items():
        table = table.property(key, value)
    table.execute()


def landings(path: str, *, after: int = -1) -> Iterator[Landing]:
    """Landing commits of a log, newest first, down to the one behind ``after``; the others are not looked at. No JVM.

    Raises:
        StateError: STATE-010, the metadata of landing commits is no longer kept.
    """
    table, limit, seen, lowest = deltalake.DeltaTable(path), 4, 0, None
    while True:
        history = table.history(limit)
        for commit in history[seen:]:
            found = Landing.from_metadata(commit.get("userMetadata"))
            if found is not None:
                if found.ordinal <= after:
                    return
                lowest = found.ordinal
                yield found
        if len(history) < limit:
            _check_complete(path, oldest_version=history[-1]["version"], lowest=lowest, after=after)
            return
        seen, limit = len(history), limit * 4


def _check_complete(path: str, *, oldest_version: int, lowest: int | None, after: int) -> None:
    if oldest_version > 0 and (lowest is None or lowest > after + 1):
        fix = "Restore its _delta_log from a backup, or land into a new log: give the source a new name."
        got = f"none before version {oldest_version}"
        raise StateError(f"log {path}", f"the metadata of landing commit {after + 1}", got, fix, code="STATE-010")


def check_fits(source: Source, definition: dict[str, object] | None) -> bool:
    """Compare a source with what its log was landed with; True when only nullable columns were added.

    Raises:
        PlanError: PLAN-010, it does not fit its log.
    """
    if definition is None or definition == source.canonical():
        return False
    now = source.canonical()
    old_columns = {c["name"]: c for c in definition["schema"]}  # type: ignore[attr-defined]  # JSON of Schema.canonical
    new_columns = {c["name"]: c for c in now["schema"]}  # type: ignore[attr-defined]  # the same
    differences = [f"column '{name}' was removed" for name in old_columns if name not in new_columns]
    added = False
    for name, column in new_columns.items():
        old = old_columns.get(name)
        if old is None:
            added = True
            if not column["nullable"]:
                differences.append(
                    f"column '{name}' was added and may not be null, but the rows landed so far have none"
                )
        elif old["type"] != column["type"]:
            differences.append(f"column '{name}' was {old['type']} and is {column['type']}")
        elif old["nullable"] and not column["nullable"]:
            differences.append(f"column '{name}' may no longer be null, but landed rows may hold nulls")
    if _may_learn(definition["watermark"], now["watermark"]):
        definition = {**definition, "watermark": now["watermark"]}
    differences += [
        f"{key} was {_words(definition.get(key))} and is {_words(now.get(key))}"
        for key in ("event_time", "watermark", "granularity", "partition_by", "read")
        if json.dumps(definition.get(key), sort_keys=True) != json.dumps(now.get(key), sort_keys=True)
    ]
    if differences:
        fix = (
            "What is in a log stays as it was landed. Undo the change, or give the source a new name: it then lands all its "
            "input again, under the new rules, into a log of its own. Only the bound of Learned(...) may change."
        )
        raise PlanError(
            f"source '{source.name}'", "what its log was landed with", "; ".join(differences), fix, code="PLAN-010"
        )
    return added


def bound_of(definition: dict[str, object] | None) -> int | None:
    """The bound a log was last landed with, ms; None before its first commit."""
    return None if definition is None else int(definition["watermark"]["bound"])  # type: ignore[index]  # JSON of Source.canonical


def _may_learn(was: object, now: object) -> bool:
    """A learned bound is its author's to change; and a source whose bound was fixed may begin to learn."""
    strategies = [value["strategy"] for value in (was, now) if isinstance(value, dict)]
    return strategies[-1:] == ["Learned"] and strategies[0] in {"Learned", "BoundedOutOfOrderness", "Ascending"}


def _words(value: object) -> str:
    if isinstance(value, dict):
        rest = ", ".join(f"{key} {setting}" for key, setting in value.items() if key != "strategy")
        return f"{value['strategy']}({rest})"
    return str(value)
