"""The control store of a workspace: its supervised streams, their states, and upkeep."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from floodmark.cli.shell.loading import LoadedWorkspace
from floodmark.core.time import describe

if TYPE_CHECKING:
    from floodmark.control.processes.supervisor import Supervisor
    from floodmark.control.state.records import Driver
    from floodmark.control.streams.fleet import Fleet

Verb = TypeVar("Verb", bound=Callable[..., Any])

_HOUR_SECONDS = 3600
_MOST_DRIVERS = 200
"""Most drivers of a stream that are counted for the last hour: a stream that sleeps is started at most every half minute."""


def serving_options(verb: Verb) -> Verb:
    """Options of the verbs that serve pages and metrics of streams."""
    port = click.option(
        "--metrics-port",
        type=click.IntRange(1, 65535),
        help="Port of the pages about streams and of /metrics for Prometheus. Default: 9464, or a free one if that is taken.",
    )
    host = click.option(
        "--metrics-host",
        default="127.0.0.1",
        show_default=True,
        help="Address for pages and metrics to listen on. There is no login: keep it local.",
    )
    return port(host(verb))


def fleet(opened: LoadedWorkspace, say: Callable[[str], None]) -> Fleet:
    """The supervised streams of a workspace; ``say`` is called with each line about an action."""
    from floodmark.control.streams.fleet import Fleet

    return Fleet(workspace=opened.workspace, root=opened.root, say=say)


def supervisor(opened: LoadedWorkspace, streams: Fleet, say: Callable[[str], None]) -> Supervisor:
    """A supervisor of the streams of a workspace, which also does the upkeep of their lakes and sends alerts."""
    from floodmark.control.health.alerting import Alerting
    from floodmark.control.processes.supervisor import supervisor as made

    settings, alerting = opened.workspace.settings, Alerting(streams.store, streams.home, say)
    return made(streams.store, streams.home, say, settings.upkeep_minutes, settings.kept_days, alerting)


def upkeep(opened: LoadedWorkspace) -> dict[str, Any] | None:
    """{``at``, ``what``, ...}: time and result of the last upkeep in words, and its numbers; None if no upkeep is recorded."""
    there = known(opened, print)
    if there is None:
        return None
    from floodmark.control.processes.periodic import ACTION, describe_upkeep

    last = there.store.last(ACTION)
    if last is None:
        return None
    return {"at": describe(int(last["at"] * 1000)), "what": describe_upkeep(last["detail"]), **last["detail"]}


def known(opened: LoadedWorkspace, say: Callable[[str], None]) -> Fleet | None:
    """The supervised streams if a stream was ever started in this lake. Otherwise None, and no control store is created."""
    from floodmark.control.processes.package import has_store

    known_fleet = fleet(opened, say) if has_store(opened.workspace.settings, opened.root) else None
    return known_fleet if known_fleet is not None and known_fleet.here else None


def streams(opened: LoadedWorkspace) -> tuple[list[dict[str, str]], dict[str, str]]:
    """(a row per started stream, operator or source -> state of its tables that have no commit). Both are empty if no stream was ever started.

    Shape: a row has ``stream``, ``version``, ``wanted`` (the desired state), ``health``, ``backpressure`` (empty if the stream should not run) and
    ``state`` in words, with what mends a fault.
    """
    from floodmark.control.processes.supervisor import awaited
    from floodmark.control.streams.vitals import vitals

    there, rows, awaits = known(opened, print), list[dict[str, str]](), dict[str, str]()
    if there is None:
        return rows, awaits
    supervised = there.supervised
    for stream in vitals(there.store, there.here):
        deployment, health, state = stream.deployment, stream.health, stream.text
        if deployment.run_when != "always":
            state += f"; {_last_hour(there.store.drivers(deployment.stream, _MOST_DRIVERS))}"
        if health.level != "ok":
            state += "" if health.reason and health.reason in state else f"; {health}"
            state += f"; {health.mend}" if health.mend else ""
        rows.append(
            {
                "stream": deployment.operator,
                "version": deployment.version,
                "wanted": deployment.desired,
                "health": health.condition,
                "backpressure": stream.pressure or "",
                "state": state,
            }
        )
        if (reason := awaited(deployment, stream.driver, supervised=supervised)) is not None:
            awaits[deployment.operator] = reason
    return rows, awaits


def _last_hour(drivers: Sequence[Driver]) -> str:
    """What the drivers of a stream that does not always have a process have cost in the last hour, for people."""
    from floodmark.lifecycle.usage import Usage

    recent = [one for one in drivers if one.started_at > time.time() - _HOUR_SECONDS]
    busy = sum(Usage.parse(one.usage).busy for one in recent)
    return f"in the last hour started {len(recent)} times, busy for {busy:.0f} s"
