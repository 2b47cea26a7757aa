"""Savepoints made on request, those a schedule retains, and those something at work needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from floodmark.control.fleet import Fleet
from floodmark.control.rollout import Rollouts
from floodmark.core.errors import LifecycleError
from floodmark.lake import cuts, experiments, savepoints, switch
from floodmark.lake.locks import data_files
from floodmark.lake.paths import Lake
from floodmark.lake.savepoints import Savepoint
from floodmark.lake.timeline import Timeline
from floodmark.lifecycle.requests import SavepointRequest

_PATIENCE_SECONDS = 60
"""For upkeep or a fork of the lake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What has become of a request.

    Args:
        made: the stream's savepoint first, then those of its readers.
        deleted: ids of those that are gone, oldest first.
        stay: id -> why, of older ones that are retained all the same.
    """

    made: list[Savepoint]
    deleted: list[str] = field(default_factory=list)
    stay: dict[str, str] = field(default_factory=dict)


def save(fleet: Fleet, operator: str, request: SavepointRequest, codes: Mapping[str, Mapping[str, Any]]) -> Saved:
    """Make a savepoint of a stream, which goes on meanwhile.

    Args:
        fleet: of the stream; the control store is only opened where older ones are to be deleted.
        operator: its name.
        request: what is asked for.
        codes: operator -> what is known of the code its stream runs.

    Raises:
        LifecycleError: LIFECYCLE-030 there is no stream, LIFECYCLE-040 no cut with its readers; as ``thin``.
    """
    if request.with_downstream:
        made = cuts.together(operator, fleet.lake, why=request.note, codes=codes)
    else:
        made = [savepoints.create(operator, fleet.lake, why=request.note, code=codes.get(operator))]
    gone, stay = thin(fleet, operator, request.note, request.keep) if request.keep else ([], {})
    return Saved(made=made, deleted=gone, stay=stay)


def thin(fleet: Fleet, operator: str, why: str, keep: int) -> tuple[list[str], dict[str, str]]:
    """Delete savepoints of a stream that were made for one reason, but the newest, pinned and needed ones.

    What it costs follows the savepoints of the operator that there are. Killed anywhere, each savepoint is there whole, or gone.

    Args:
        fleet: of the stream.
        operator: whose savepoints.
        why: the note they were made with.
        keep: the newest so many are retained, 1 or more.

    Returns:
        Ids of those that are gone, and id -> why, of those that are retained beside the newest.

    Raises:
        LifecycleError: LIFECYCLE-105, without a note nobody knows which are meant; LIFECYCLE-003, upkeep or a fork is at work for long.
    """
    if not why:
        fix = f"Give one: floodmark savepoint create {operator} --note hourly --keep {keep}"
        where = f"retention of savepoints of '{operator}'"
        raise LifecycleError(where, "the note of those that are counted", "none", fix, code="LIFECYCLE-105")
    with data_files(fleet.lake, "retention of savepoints", _PATIENCE_SECONDS):  # no fork is on its way
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
    """Make sure that nothing at work goes back to a savepoint, or begins with it.

    Args:
        lake: of the savepoint.
        savepoint: that shall be deleted.
        streams: of the lake; None where no stream was ever started to run by itself.

    Raises:
        LifecycleError: LIFECYCLE-113.
    """
    operator = savepoint.manifest.operator
    needed = _needed(lake, operator, streams)
    if savepoint.id in needed:
        need = needed[savepoint.id]
        where = f"savepoint '{savepoint.id}'"
        raise LifecycleError(where, "one that nothing needs", need.reason, need.fix, code="LIFECYCLE-113")


class Need(NamedTuple):
    """Why a savepoint is needed, and what ends that."""

    reason: str
    fix: str = (
        "Wait until that is over, or end it: floodmark rollout abort OPERATOR; floodmark experiment stop NAME, then floodmark experiment clean NAME. "
        "How things are: floodmark rollout status, floodmark experiment list, floodmark status"
    )


def _needed(lake: Lake, operator: str, streams: Fleet | None) -> dict[str, Need]:
    """Savepoint -> who needs it: what is at work may go back to it, or begin with it again after a crash."""
    return (_of_store(streams, operator) if streams is not None else {}) | _of_lake(lake, operator)


def _of_lake(lake: Lake, operator: str) -> dict[str, Need]:
    """As the lake says."""
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
    """As the control store says."""
    needed = dict[str, Need]()
    for action in fleet.store.open_actions():
        if action.savepoint:
            needed[action.savepoint] = Need(f"a {action.kind} that is not finished may go back to it")
    rollout = Rollouts(fleet.store).open(fleet.stream(operator))
    if rollout is not None and rollout.savepoint:
        needed[rollout.savepoint] = Need(f"{rollout.name} may go back to it")
    return needed
