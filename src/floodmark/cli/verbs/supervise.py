"""The verbs supervise, start, stop, restart, logs and alerts, for supervised streams."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import opened_lake
from floodmark.cli.shell.signals import stopping
from floodmark.cli.shell.store import fleet, known, serving_options, supervisor
from floodmark.core import background, machine
from floodmark.core.errors import LifecycleError
from floodmark.core.time import iso

if TYPE_CHECKING:
    from floodmark.control.streams.fleet import Fleet

_POLL_SECONDS = 0.2
_TAIL_BYTES = 64_000


@click.command()
@click.option(
    "--stand-by",
    is_flag=True,
    help="Wait while another supervisor is at work, here or on another host, and take over. Its streams stop with it.",
)
@serving_options
@shared
@pass_invocation
def supervise(invocation: Invocation, *, stand_by: bool, metrics_host: str, metrics_port: int | None) -> None:
    """Run all started streams, and restart streams that crash. Ctrl-C ends the supervisor and leaves the streams running.

    Serves a page about each stream, and metrics for Prometheus.
    """
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    streams = fleet(opened, console.say)
    from floodmark.control.serving.server import serving

    own = supervisor(opened, streams, console.say)
    serves = serving(streams.store, metrics_host, metrics_port, console.say, own.is_stuck)
    with stopping(console, "its next look") as stop, serves:
        if stand_by:
            console.say(
                f"supervising by {streams.home} once no other supervisor is at work; Ctrl-C ends this, and its streams"
            )
            own.stand_by(stop)
        else:
            console.say(f"supervising by {streams.home}; Ctrl-C ends this, and leaves what runs running")
            own.run(stop)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All sources, operators and deliveries of the workspace.")
@shared
@pass_invocation
def start(invocation: Invocation, names: tuple[str, ...], *, everything: bool) -> None:
    """Start the streams of NAMES, operators, sources and deliveries, with a package of the current code. The stream of a source lands its rows as they come.

    Later changes of files do not affect the streams.
    """
    _check_names(names, everything=everything)
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    machine.refuse_read_only(opened.lake, f"lake {opened.lake}")  # the driver would report it in its log alone
    workspace = opened.workspace
    streams = fleet(opened, console.say)
    package = streams.start(workspace.streams if everything else [workspace.stream(name) for name in names])
    _supervised(streams)
    started = [one.version for one in streams.here if one.package == package and (everything or one.operator in names)]
    console.document({"lake": opened.lake, "package": package, "started": started})


@click.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All streams that were started here.")
@click.option(
    "--wait", type=click.FloatRange(min=0), default=150.0, show_default=True, help="Seconds until they have stopped."
)
@shared
@pass_invocation
def stop(invocation: Invocation, names: tuple[str, ...], *, everything: bool, wait: float) -> None:
    """Stop the streams of NAMES, operators, sources and deliveries, each after the commit that it is writing."""
    _check_names(names, everything=everything)
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    streams = fleet(opened, console.say)
    stopped = _stop(streams, _started(streams) if everything else names, wait)
    console.document({"lake": opened.lake, "stopped": stopped})


@click.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All streams that were started here and should run.")
@click.option(
    "--wait", type=click.FloatRange(min=0), default=150.0, show_default=True, help="Seconds until they have stopped."
)
@shared
@pass_invocation
def restart(invocation: Invocation, names: tuple[str, ...], *, everything: bool, wait: float) -> None:
    """Restart the streams of NAMES, operators, sources and deliveries, from their deployed package. Resets the count of crashes."""
    _check_names(names, everything=everything)
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    machine.refuse_read_only(opened.lake, f"lake {opened.lake}")
    streams = fleet(opened, console.say)
    restarted = _stop(streams, _started(streams, running=True) if everything else names, wait)
    for name in restarted:
        streams.want(name, "running")
        console.say(f"{name} should run")
    _supervised(streams)
    console.document({"lake": opened.lake, "restarted": restarted})


@click.command()
@click.argument("stream", metavar="NAME")
@click.option("--follow", "-f", is_flag=True, help="Follow the log until Ctrl-C.")
@shared
@pass_invocation
def logs(invocation: Invocation, stream: str, *, follow: bool) -> None:
    """Show the end of the log of the last driver of NAME, an operator, a source or a delivery."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.control.processes.supervisor import describe_driver

    streams = fleet(opened, console.say)
    name = streams.named(stream)
    driver = streams.driver(name)
    if driver is None:
        raise _silent(streams, name)
    console.note(f"{driver.log} of {driver.version}: {describe_driver(driver, streams.store.now())}")
    text, size = background.tail(Path(driver.log), _TAIL_BYTES)
    console.say(text.rstrip())
    if follow:
        with stopping(console, "this") as ended:
            while not ended.wait(_POLL_SECONDS):
                text, size = background.tail(Path(driver.log), _TAIL_BYTES, since=size)
                if text:
                    console.say(text.rstrip())
    console.document({"lake": opened.lake, "log": driver.log, "state": driver.state, "text": text})


@click.command()
@click.argument("stream", metavar="[NAME]", required=False)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Most messages to show of a stream, newest first.",
)
@shared
@pass_invocation
def alerts(invocation: Invocation, stream: str | None, limit: int) -> None:
    """Show the messages of alerts about the stream of NAME, or about all streams: what they told, and whether they were received."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.control.state.messages import Messages

    there = known(opened, console.say)
    names = [] if there is None else [there.named(stream)] if stream else [one.operator for one in there.here]
    messages = (
        [] if there is None else [one for name in names for one in Messages(there.store).of(there.stream(name), limit)]
    )
    messages.sort(key=lambda message: -message.change.at)
    rows = [
        (iso(int(one.change.at * 1000)), str(one.change), f"alert {one.alert + 1}", one.state, one.tries, one.error)
        for one in messages
    ]
    if not rows:
        console.say("no alert has told of a stream: Workspace(alerts=[...]) declares them")
    console.table(("at", "told", "to", "state", "tries", "error"), rows)
    console.document({"lake": opened.lake, "messages": [asdict(one) for one in messages]})


def _silent(streams: Fleet, name: str) -> LifecycleError:
    """The error LIFECYCLE-050 for a stream without a driver: it was never started, or its driver is about to start."""
    from floodmark.control.processes.supervisor import awaited
    from floodmark.control.streams.fleet import error_never_started

    deployment = streams.deployments([name]).get(name)
    awaits = None if deployment is None else awaited(deployment, None, supervised=streams.supervised)
    if awaits is None:
        return error_never_started(name, streams.elsewhere(name))
    fix = f"Try again when it has one: floodmark status, then floodmark logs {name}"
    return LifecycleError(f"stream '{name}'", "a driver, whose log this is", awaits, fix, code="LIFECYCLE-050")


def _supervised(streams: Fleet) -> None:
    if not streams.supervised:
        streams.say("no supervisor is at work, so nothing happens yet: floodmark supervise")


def _check_names(names: tuple[str, ...], *, everything: bool) -> None:
    if bool(names) == everything:
        msg = "name the operators, sources and deliveries, or give --all"
        raise click.UsageError(msg)


def _started(streams: Fleet, *, running: bool = False) -> list[str]:
    """Names of the streams that were started here; with ``running`` of those that should run."""
    return [one.operator for one in streams.here if one.desired == "running" or not running]


def _stop(streams: Fleet, names: Sequence[str], wait: float) -> list[str]:
    from floodmark.control.processes.supervisor import describe_driver

    known = [streams.named(name) for name in names]
    streams.check_idle(known)
    for name, driver in streams.stop(known, wait).items():
        streams.say(f"{name}: {'not running' if driver is None else describe_driver(driver)}")
    return known
