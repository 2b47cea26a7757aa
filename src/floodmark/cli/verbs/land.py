"""The verbs land and deliver: land new rows of sources and end sources that are complete; deliver changes of outputs to sinks."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.duration import duration
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import opened_lake
from floodmark.cli.shell.signals import stopping
from floodmark.cli.shell.spark import computing
from floodmark.core.errors import FloodmarkError, LifecycleError
from floodmark.core.time import describe
from floodmark.spec.rows.source import Source
from floodmark.spec.workspace import Engine

if TYPE_CHECKING:
    from floodmark.deliveries.run import Delivery
    from floodmark.engines.landing.session import Committed, LandingResult


@click.command()
@click.argument("sources", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every source of the workspace.")
@click.option("--continuous", is_flag=True, help="Keep landing new rows of one source, until Ctrl-C.")
@click.option(
    "--end",
    is_flag=True,
    help="Then land the end of input: every window fires, and no row lands until --reopen.",
)
@click.option(
    "--wait",
    metavar="DURATION",
    help="With --end: wait so long for files that are still being written, unfinished or refused.",
)
@click.option("--reopen", is_flag=True, help="First undo an end of input that no stream has read.")
@click.option("--limit-commits", type=click.IntRange(min=1), help="Most landing commits per source.")
@click.option(
    "--engine",
    type=click.Choice(["spark", "embedded"]),
    help="Engine that lands the rows. Default: the engine of the settings.",
)
@shared
@pass_invocation
def land(  # noqa: PLR0913 - click hands over each option by name
    invocation: Invocation,
    *,
    sources: tuple[str, ...],
    everything: bool,
    continuous: bool,
    end: bool,
    wait: str | None,
    reopen: bool,
    limit_commits: int | None,
    engine: Engine | None,
) -> None:
    """Land new rows of SOURCES into their logs. A source that fails does not keep the others from landing."""
    _check_landing(sources, everything=everything, continuous=continuous, end=end, wait=wait)
    wait_seconds = 0 if wait is None else duration(wait, "--wait", least=0) / 1000
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    workspace = opened.workspace
    chosen = workspace.sources if everything else tuple(workspace.source(name) for name in sources)
    if not chosen:
        console.say("the workspace has no sources; list them in its definitions: Workspace(sources=[...])")
        console.document({"lake": opened.lake, "sources": []})
        return
    from floodmark.engines.landing.run import check_start
    from floodmark.lake.folder.paths import Lake

    lake, folder = Lake.of(workspace.settings), Path(workspace.settings.folder)
    failures = _Failures(console, " --end" * end)
    for source in chosen:
        with failures.collected(source):
            check_start(source, lake, folder, reopen=reopen)
    sound = [source for source in chosen if source.name not in failures.errors]
    computed, results = computing(opened, console, engine), []
    if sound and computed.name == "spark":  # Spark must install its signal handlers before ours
        computed.start()
    with stopping(console, "this landing commit") as stop:
        for source in sound:
            if stop.is_set():
                break
            begun = time.monotonic()
            with failures.collected(source):
                result = computed.land(
                    source,
                    lake,
                    until_caught_up=not continuous,
                    end=end,
                    reopen=reopen,
                    on_commit=lambda commit: console.note(_commit(commit)),
                    stop=stop,
                    max_commits=limit_commits,
                    wait_seconds=wait_seconds,
                    workspace=folder,
                )
                _say_landed(console, source, result, time.monotonic() - begun)
                results.append(result)
    console.document(
        {"lake": opened.lake, "sources": [asdict(result) for result in results], **failures.as_json()},
        failures.error(len(chosen)),
    )


@dataclass(frozen=True, slots=True)
class _Failures:
    """The sources that did not land, while the others do.

    Args:
        console: where each is said.
        options: of the verb, for the command that goes on with them.
        errors: source -> its error.
    """

    console: Console
    options: str
    errors: dict[str, FloodmarkError] = field(default_factory=dict)

    @contextmanager
    def collected(self, source: Source) -> Iterator[None]:
        """Keep an error of floodmark's instead of raising it."""
        try:
            yield
        except FloodmarkError as error:
            self.errors[source.name] = error

    def error(self, sources: int) -> FloodmarkError | None:
        """The error of the verb, after all of several sources are reported; that of the source if the verb has one."""
        if sources == 1:
            return next(iter(self.errors.values()), None)
        for name, error in self.errors.items():
            self.console.say(f"{name}: {error}")
        if not self.errors:
            return None
        fix = f"What each of them lacks is said above. Then: floodmark land {' '.join(self.errors)}{self.options}"
        got = f"{sources - len(self.errors)}; not {', '.join(self.errors)}"
        return LifecycleError("land", f"all {sources} sources to land", got, fix, code="LIFECYCLE-187")

    def as_json(self) -> dict[str, Any]:
        """Source -> its error; nothing if all have landed."""
        return {"errors": {name: error.as_json() for name, error in self.errors.items()}} if self.errors else {}


def _check_landing(
    sources: tuple[str, ...], *, everything: bool, continuous: bool, end: bool, wait: str | None
) -> None:
    if bool(sources) == everything:
        msg = "name the sources to land, or give --all"
        raise click.UsageError(msg)
    if continuous and (everything or len(sources) > 1):
        msg = "--continuous lands one source; start one process per source"
        raise click.UsageError(msg)
    if wait is not None and not end:
        msg = "--wait means nothing without --end"
        raise click.UsageError(msg)
    if continuous and end:
        msg = "--end means nothing with --continuous; land with --end once the source has really ended"
        raise click.UsageError(msg)


def _commit(commit: Committed) -> str:
    quarantined = f", {commit.quarantined:,} quarantined" if commit.quarantined else ""
    pending = f", {commit.pending:,} files to go" if commit.pending else ""
    rate = f", {commit.rows / commit.seconds:,.0f} rows/s" if commit.seconds else ""
    when = describe(commit.watermark)
    return (
        f"  {commit.source} commit {commit.ordinal}: {commit.rows:,} rows{quarantined}, watermark {when}{pending}{rate}"
    )


def _say_landed(console: Console, source: Source, result: LandingResult, seconds: float) -> None:
    landed = f"{result.rows:,} rows in {result.commits:,} commit{'s' * (result.commits != 1)}, {result.quarantined:,} quarantined"
    console.say(f"{result.source}: {landed}; watermark {describe(result.watermark)}; {seconds:.1f} s")
    if left_out := result.left_out.describe(source.contract.__name__, result.rows + result.quarantined):
        console.say(f"  {left_out}")
    if nulls := result.default_nulls.describe():
        console.say(f"  {nulls}")
    for some in result.far:
        console.say(f"  {some.describe()}")
    for name, why in result.waiting.items():
        console.say(f"  waiting: {name}: {why}")
    if result.quarantined:
        console.say(f"  see them: floodmark quarantine show {result.source}")


@click.command()
@click.argument("name", metavar="DELIVERY")
@click.option("--continuous", is_flag=True, help="Keep delivering, and wait for a sink that is away, until Ctrl-C.")
@shared
@pass_invocation
def deliver(invocation: Invocation, *, name: str, continuous: bool) -> None:
    """Deliver to the sink of DELIVERY the changes of its output that the sink does not have yet. Needs no engine."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.deliveries.run import deliver as delivered
    from floodmark.lake.folder.paths import Lake

    route, lake, begun = opened.workspace.delivery(name), Lake.of(opened.workspace.settings), time.monotonic()
    deliveries: list[Delivery] = []

    def tell(delivery: Delivery) -> None:
        deliveries.append(delivery)
        console.note(f"  {delivery}")

    def wait(text: str) -> None:
        if text:
            console.note(f"  {text}")

    with stopping(console, "this delivery") as stop:
        at = delivered(route, lake, stop=stop, on_delivery=tell, on_wait=wait, until_caught_up=not continuous)
    rows, gone = sum(one.rows for one in deliveries), sum(one.retractions for one in deliveries)
    reached = "nothing to deliver yet" if at is None else f"up to version {at.version}, {describe(at.progress)}"
    console.say(f"{name}: {rows:,} results, {gone:,} taken back; {reached}; {time.monotonic() - begun:.1f} s")
    position = None if at is None else {"version": at.version, "number": at.number, "progress": describe(at.progress)}
    about = {"delivery": name, "rows": rows, "retractions": gone, "position": position}
    console.document({"lake": opened.lake, **about})
