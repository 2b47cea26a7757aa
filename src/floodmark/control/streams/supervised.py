"""Supervised streams around an action: their deployments before, and the steps that stop and start them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict

from floodmark.control.state.records import Desired
from floodmark.control.streams.fleet import Fleet, error_never_started
from floodmark.control.streams.verification import Verification
from floodmark.lake.restore.rollback import Prepared
from floodmark.lifecycle.steps import Deploy, Save, Step, Stop, Verify

Old = dict[str, dict[str, str]]
"""Operator -> ``package``, ``version`` and ``desired`` before an action; for a rebuilt stream also its ``next`` package."""


def wanted(fleet: Fleet, names: Iterable[str], *, need: bool = True) -> Old:
    """The current deployments of streams.

    Args:
        fleet: the fleet of the streams.
        names: names of the operators.
        need: True to raise for a stream without deployment; False to leave it out.

    Raises:
        LifecycleError: LIFECYCLE-050, a needed stream was never started.
    """
    deployed = fleet.deployments(names)
    for name in names:
        if need and name not in deployed:
            raise error_never_started(name, fleet.elsewhere(name))
    return {
        name: {key: value for key, value in asdict(one).items() if key in {"package", "version", "desired"}}
        for name, one in deployed.items()
    }


def desired_of(old: dict[str, str]) -> Desired:
    """The desired state of a stream before an action."""
    return "running" if old["desired"] == "running" else "stopped"


def check_supervised(fleet: Fleet, old: Old) -> None:
    """Check that a supervisor is running, if any of the streams should run.

    Raises:
        LifecycleError: LIFECYCLE-053, no supervisor is running.
    """
    if any(one["desired"] == "running" for one in old.values()):
        fleet.check_supervised(old)


def stopping(names: Iterable[str], old: Collection[str]) -> list[Stop]:
    """The step that stops the deployed ones of some streams; empty if none is deployed."""
    known = tuple(name for name in names if name in old)
    return [Stop(operators=known)] if known else []


def pausing(names: Sequence[str], old: Collection[str], why: str) -> Iterator[Step]:
    """The steps that stop a stream and its readers with a savepoint at a consistent cut.

    Args:
        names: names of the operators, the upstream one first.
        old: the deployed operators.
        why: note for the savepoint.
    """
    first, *reading = names
    yield from stopping([first], old)
    yield Save(operator=first, why=why)
    yield from stopping(reading, old)


def starting(name: str, version: str, old: dict[str, str], verification: Verification) -> Iterator[Step]:
    """The steps that deploy a version and, if its predecessor was running, verify it.

    Args:
        name: name of the operator.
        version: the new version.
        old: the stream's entry of ``Old``.
        verification: the checks of the new version.
    """
    desired = desired_of(old)
    yield Deploy(operator=name, version=version, desired=desired)
    if desired == "running":
        yield Verify(operator=name, version=version, patience=verification.patience, soak=verification.soak)


def running(prepared: Prepared, old: Old) -> list[Deploy]:
    """The steps that deploy the rolled-back streams that were deployed before."""
    return [
        Deploy(operator=target.operator, version=target.version, desired=desired_of(old[target.operator]))
        for target in prepared.switch.targets
        if target.operator in old
    ]
