"""The control store of a workspace, and how its streams are."""

# ruff: noqa: PLC0415 - what is slow to import is imported when it is needed

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from floodmark.cli.loading import Opened
from floodmark.core.time import describe

if TYPE_CHECKING:
    from floodmark.control.fleet import Fleet
    from floodmark.control.records import Driver
    from floodmark.control.supervisor import Supervisor


def fleet(opened: Opened, say: Callable[[str], None]) -> Fleet:
    """The streams of a workspace that run by themselves."""
    from floodmark.control.fleet import Fleet

    return Fleet(workspace=opened.workspace, root=opened.root, say=say)


def supervisor(opened: Opened, streams: Fleet, say: Callable[[str], None]) -> Supervisor:
    """A supervisor of the streams of a workspace, which keeps up their lakes too."""
    from floodmark.control.supervisor import supervisor as made

    settings = opened.workspace.settings
    return made(streams.store, streams.home, say, settings.upkeep_minutes, settings.kept_days)


def upkeep(opened: Opened) -> dict[str, Any] | None:
    """When the last upkeep ended and what it did, in words; None where none was written down."""
    there = known(opened, print)
    if there is None:
        return None
    from floodmark.control.periodic import ACTION, describe_upkeep

    last = there.store.last(ACTION)
    if last is None:
        return None
    return {"at": describe(int(last["at"] * 1000)), "what": describe_upkeep(last["detail"]), **last["detail"]}


def known(opened: Opened, say: Callable[[str], None]) -> Fleet | None:
    """The same where a stream was ever started to run by itself in this lake; otherwise None, and nothing is made."""
    from floodmark.control.package import has_store

    known_fleet = fleet(opened, say) if has_store(opened.workspace.settings, opened.root) else None
    return known_fleet if known_fleet is not None and known_fleet.here else None


def describe_driver(driver: Driver) -> str:
    """How a driver is, for people."""
    from floodmark.control.supervisor import describe_driver

    return describe_driver(driver)


def streams(opened: Opened) -> tuple[list[dict[str, str]], dict[str, str]]:
    """The streams that were started, and how they are; operator -> what an output without any commit waits for. Nothing where none ever was."""
    from floodmark.control.supervisor import awaited

    there, rows, awaits = known(opened, print), list[dict[str, str]](), dict[str, str]()
    if there is None:
        return rows, awaits
    supervised = there.supervised
    for deployment in there.here:
        driver = next(iter(there.store.drivers(deployment.stream, 1)), None)
        state = "not started yet" if driver is None else describe_driver(driver)
        rows.append(
            {"stream": deployment.operator, "version": deployment.version, "wanted": deployment.desired, "state": state}
        )
        if (reason := awaited(deployment, driver, supervised=supervised)) is not None:
            awaits[deployment.operator] = reason
    return rows, awaits
