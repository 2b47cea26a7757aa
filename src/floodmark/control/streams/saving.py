"""Savepoints on request, their retention by schedules, and the savepoints that running work needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from floodmark.control.state.rollout import Rollouts
from floodmark.control.streams.fleet import Fleet
from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.locks import data_files
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import cuts, experiments, savepoints, switch
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.requests import SavepointRequest

_PATIENCE_SECONDS = 60
"""Longest wait for upkeep or a fork of the lake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """Result of a request.

    Args:
        made: the created savepoints, the stream's first, then those of its readers.
        deleted: ids of the deleted savepoints, oldest first.
        stay: id -> reason, for older savepoints that could not be deleted.
    """

    made: list[Savepoint]
    deleted: list[str] = field(default_factory=list)
    stay: dict[str, str] = field(default_factory=dict)


def save(fleet: Fleet, operator: str, request: SavepointRequest, codes: Mapping[str, Mapping[str, Any]]) -> Saved:
    """Create a savepoint of a stream, which may keep running, and delete older ones if requested.

    Args:
        fleet: fleet of the stream. Its control store is used only if older savepoints are to be deleted.
        operator: name of the operator.
        request: note, downstream and retention options.
        codes: operator -> description of the code its stream runs.

    Raises:
        LifecycleError: LIFECYCLE-030 the stream never started, LIFECYCLE-040 no consistent cut with its readers; and the errors of ``thin``.
    """
    if request.with_downstream:
        made = cuts.create_coordinated_savepoints(operator, fleet.lake, why=request.note, codes=codes)
    else:
        made = [savepoints.create(operator, fleet.lake, why=request.note, code=codes.get(operator))]
    gone, stay = thin(fleet, operator, request.note, request.keep) if request.keep else ([], {})
    return Saved(made=made, deleted=gone, stay=stay)


def thin(fleet: Fleet, operator: str, why: str, keep: int) -> tuple[list[str], dict[str, str]]:
    """Delete the savepoints of a stream with one note, except the newest, pinned and needed ones.

    The cost depends on the number of savepoints of the operator. Each deletion is atomic, so the call may be killed at any point.

    Args:
        fleet: fleet of the stream.
        operator: name of the operator.
        why: note of the savepoints.
        keep: number of newest savepoints to retain, at least 1.

    Returns:
        Ids of the deleted savepoints, and id -> reason for older ones that are retained.

    Raises:
        LifecycleError: LIFECYCLE-105 the note is empty, LIFECYCLE-003 upkeep or a fork takes too long.
    """
    if not why:
        fix = f"Give one: floodmark savepoint create {operator} --note hourly --keep {keep}"
        where = f"retention of savepoints of '{operator}'"
        raise LifecycleError(where, "the note of those that are counted", "none", fix, code="LIFECYCLE-105")
    with data_files(
        fleet.lake, "retention of savepoints", _PATIENCE_SECONDS
    ):  # excludes forks, which need their savepoint
        made = [savepoint for savepoint in savepoints.savepoints(fleet.lake, operator) if savepoint.manifest.why == why]
        needed, gone, stay = _needed(fleet.lake, operator, fleet), list[str](), dict[str, str]()
        for savepoint in made[:-keep]:
            reason = "it is pinned" if savepoint.pinned else needed.get(savepoint.manifest.id, Need("")).reason
            if reason:
                stay[savepoint.manifest.id] = reason
            else:
                savepoints.delete(savepoint)
                gone.append(savepoint.manifest.id)
    return gone, stay


def check_unneeded(lake: Lake, savepoint: Savepoint, streams: Fleet | None) -> None:
    """Check that no running work may restore a savepoint or start from it.

    Args:
        lake: lake of the savepoint.
        savepoint: the savepoint to be deleted.
        streams: fleet of the lake; None if there is no control store.

    Raises:
        LifecycleError: LIFECYCLE-113, the savepoint is needed.
    """
    operator = savepoint.manifest.operator
    needed = _needed(lake, operator, streams)
    if savepoint.id in needed:
        need = needed[savepoint.id]
        where = f"savepoint '{savepoint.id}'"
        raise LifecycleError(where, "one that nothing needs", need.reason, need.fix, code="LIFECYCLE-113")


class Need(NamedTuple):
    """The reason why a savepoint is needed, and how to end that."""

    reason: str
    fix: str = (
        "Wait until that is over, or end it: floodmark rollout abort OPERATOR; floodmark experiment stop NAME, then floodmark experiment clean NAME. "
        "How things are: floodmark rollout status, floodmark experiment list, floodmark status"
    )


def _needed(lake: Lake, operator: str, streams: Fleet | None) -> dict[str, Need]:
    """Savepoint id -> need, for savepoints that running work may restore, or start from again after a crash."""
    return (_of_store(streams, operator) if streams is not None else {}) | _of_lake(lake, operator)


def _of_lake(lake: Lake, operator: str) -> dict[str, Need]:
    """Needs recorded in the lake: experiments, a move, and an unfinished switch."""
    needed = {one.savepoint: Need(f"experiment '{one.name}' began with it") for one in experiments.known(lake)}
    moved = Timeline.current(lake, operator).moved
    if moved is not None:
        fix = f"It is what the stream resumes from, should it come back: floodmark rollback {operator} --to {moved.savepoint}"
        needed[moved.savepoint] = Need(f"its stream has moved to {moved.root} with it", fix)
    begun = switch.pending(lake)
    if begun is not None:
        need = Need("a rollback or rebuild that is not finished", f"Finish that one first: {begun.again}")
        needed |= dict.fromkeys([begun.back, *(target.savepoint for target in begun.targets)], need)
    return needed


def _of_store(fleet: Fleet, operator: str) -> dict[str, Need]:
    """Needs recorded in the control store: unfinished actions and an open rollout."""
    needed = dict[str, Need]()
    for action in fleet.store.open_actions():
        if action.savepoint:
            needed[action.savepoint] = Need(f"a {action.kind} that is not finished may go back to it")
    rollout = Rollouts(fleet.store).open(fleet.stream(operator))
    if rollout is not None and rollout.savepoint:
        needed[rollout.savepoint] = Need(f"{rollout.name} may go back to it")
    return needed
