"""Streams that a supervisor runs, around an action: what should run, and how it stops before and starts behind."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict

from floodmark.control.fleet import Fleet, never
from floodmark.control.records import Desired
from floodmark.control.verification import Verification
from floodmark.lake.rollback import Prepared
from floodmark.lifecycle.steps import Deploy, Save, Step, Stop, Verify

Old = dict[str, dict[str, str]]
"""Operator -> package, version and whether it should have run; of one that is rebuilt also its ``next`` package."""


def wanted(fleet: Fleet, names: Iterable[str], *, need: bool = True) -> Old:
    """What should run now."""
    deployed = fleet.deployments(names)
    for name in names:
        if need and name not in deployed:
            raise never(name, fleet.elsewhere(name))
    return {
        name: {key: value for key, value in asdict(one).items() if key in {"package", "version", "desired"}}
        for name, one in deployed.items()
    }


def desired_of(old: dict[str, str]) -> Desired:
    """Whether a stream should have run before an action."""
    return "running" if old["desired"] == "running" else "stopped"


def check_supervised(fleet: Fleet, old: Old) -> None:
    """Make sure that somebody is there to stop and start those that should run."""
    if any(one["desired"] == "running" for one in old.values()):
        fleet.check_supervised(old)


def stopping(names: Iterable[str], old: Collection[str]) -> list[Stop]:
    """How those of the streams stop that a supervisor knows."""
    known = tuple(name for name in names if name in old)
    return [Stop(operators=known)] if known else []


def pausing(names: Sequence[str], old: Collection[str], why: str) -> Iterator[Step]:
    """How a stream and those that read it come to a stop, at one cut where they can.

    Args:
        names: of the streams, the one that is read first.
        old: those that a supervisor knows.
        why: a note for the savepoint.
    """
    first, *reading = names
    yield from stopping([first], old)
    yield Save(operator=first, why=why)
    yield from stopping(reading, old)


def starting(name: str, version: str, old: dict[str, str], verification: Verification) -> Iterator[Step]:
    """How a version comes to run, where its predecessor did."""
    desired = desired_of(old)
    yield Deploy(operator=name, version=version, desired=desired)
    if desired == "running":
        yield Verify(operator=name, version=version, patience=verification.patience, soak=verification.soak)


def running(prepared: Prepared, old: Old) -> list[Deploy]:
    """What runs after a rollback."""
    return [
        Deploy(operator=target.operator, version=target.version, desired=desired_of(old[target.operator]))
        for target in prepared.switch.targets
        if target.operator in old
    ]
