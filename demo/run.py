"""The reference workspace from its inbox to answers that must be the same: of each engine in two modes, and DuckDB's; then an experiment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import combinations, product

import pyarrow as pa

from demo.comparison import Comparison, compare
from demo.follower import WATCHED, Followed, Follower
from demo.inbox import write_inbox
from demo.oracle import Oracle
from demo.places import MODES, Places, Progress
from demo.predictors import Contest, contest
from demo.tables import commits, final, read, without_stamps
from demo.topics import from_topic, topics
from floodmark.control.processes.engine import Computing
from floodmark.core.time import END, NEVER, Interval
from floodmark.lake.folder.paths import Lake
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.rows.source import Source
from floodmark.spec.values.run import RunResult
from floodmark.spec.workspace import Engine, Workspace

ALWAYS = Interval(start=NEVER, end=END + 1)
"""All of time."""
LOSS_OF = "hourly_departures"
"""The operator whose late loss is shown window by window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """What landing one source came to."""

    source: str
    rows: int
    commits: int
    quarantined: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One output in all its versions: of each engine in each mode, and DuckDB's.

    Args:
        table: of the output.
        rows: DuckDB's.
        comparisons: of each pair that was compared.
    """

    table: str
    rows: int
    comparisons: tuple[Comparison, ...]

    @property
    def differences(self) -> int:
        """Of all pairs."""
        return sum(comparison.differences for comparison in self.comparisons)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Everything the demo found, for the text and for the report; per engine, what it computed."""

    days: int | None
    landed: list[Landed] = field(default_factory=list)
    bounded: dict[Engine, dict[str, RunResult]] = field(default_factory=dict)
    followed: dict[Engine, Followed] = field(default_factory=dict)
    compared: list[Compared] = field(default_factory=list)
    lateness: dict[str, dict[str, int]] = field(default_factory=dict)
    loss: pa.Table | None = None
    answers: dict[str, pa.Table] = field(default_factory=dict)
    contest: Contest | None = None
    seconds: float = 0.0
    kafka: str = ""

    @property
    def engines(self) -> tuple[Engine, ...]:
        """Those that computed."""
        return tuple(self.bounded)

    @property
    def answers_compared(self) -> int:
        """Of each engine in each mode, and DuckDB's."""
        return len(self.engines) * len(MODES) + 1

    @property
    def rows(self) -> int:
        """Flights landed."""
        return next((landed.rows for landed in self.landed if landed.source == "flights"), 0)

    @property
    def problems(self) -> list[str]:
        """Why the demo failed; empty when it did not."""
        found = [f"{c.table}: {c.differences:,} differences" for c in self.compared if c.differences]
        if self.contest is not None and self.contest.differences:
            found.append(f"the predictors: {self.contest.differences:,} differences to pandas")
        total = {kind: sum(one[kind] for one in self.lateness.values()) for kind in ("late", "refired", "dropped")}
        if self.days is None:
            found += [
                f"no {kind} row in the whole year; the demo proves nothing about them"
                for kind, n in total.items()
                if not n
            ]
        for run, operator, *counted in self._late_counts():
            expected = self.lateness.get(operator)
            if expected and [expected["refired"], expected["dropped"]] != counted:
                got = "refired {:,}, dropped {:,}".format(*counted)
                found.append(
                    f"{operator} {run}: {got}, but DuckDB counts {expected['refired']:,} and {expected['dropped']:,}"
                )
        return found

    def _late_counts(self) -> Iterator[tuple[str, str, int, int]]:
        """What each run counted; not the one that was killed, whose second half knows only its own rows."""
        for engine, results in self.bounded.items():
            for operator, result in results.items():
                yield f"bounded on {engine}", operator, result.late, result.dropped
        for engine, followed in self.followed.items():
            for run in followed.runs:
                if followed.killed_after is None or run["operator"] != WATCHED:
                    yield f"unbounded on {engine}", run["operator"], run["late"], run["dropped"]


def run_demo(
    workspace: Workspace,
    places: Places,
    progress: Progress,
    *,
    days: int | None,
    engines: Sequence[Engine],
    engine: Callable[[Engine], Computing],
    kafka: str = "",
) -> Outcome:
    """Run it.

    Args:
        workspace: the reference workspace; of its operators those run that DuckDB has an answer for.
        places: folders; the lakes in them must not exist yet.
        progress: told about every step.
        days: the first so many days of flights; the year when None.
        engines: those that compute, each in both modes.
        engine: one of them, or the embedded one, whose session starts when it is needed.
        kafka: ``host:port`` of a broker, through which the rows of the inbox go before they land; empty for none.
    """
    begun, outcome = time.monotonic(), Outcome(days=days, kafka=kafka)
    known = [asset for asset in workspace.operator_assets if asset.operator.name in Oracle.OPERATORS]
    workspace = Workspace(sources=workspace.source_assets, operators=known, settings=workspace.settings)
    with progress.step("writing the inbox"):
        write_inbox(places.inbox, days=days)
    if kafka:
        outcome.landed.extend(_land_topics(engine("embedded"), workspace, places, progress, kafka))
    else:
        outcome.landed.extend(_land(engine("embedded"), workspace.sources, places, progress))
    for name in engines:
        _run_both(workspace, places, progress, outcome, engine(name))
    with progress.step("asking DuckDB, and comparing row by row"):
        _compare(workspace, places, outcome)
    outcome.contest = contest(engine("embedded"), places, progress)
    outcome.seconds = time.monotonic() - begun
    return outcome


def _run_both(workspace: Workspace, places: Places, progress: Progress, outcome: Outcome, computing: Computing) -> None:
    """Everything bounded here and, at the same time, unbounded in a process of its own."""
    engine = computing.name
    results = outcome.bounded.setdefault(engine, {})
    follower = Follower(places, progress, [operator.name for operator in workspace.operators], engine)
    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(follower.follow)
        try:
            for operator in workspace.operators:
                computing.start(operator)
                with progress.step(f"{operator.version} bounded on {engine}"):
                    results[operator.name] = computing.run_bounded(operator, places.ran(engine, "bounded"), ALWAYS)
            if engine == "embedded":
                with progress.step(f"{LOSS_OF} bounded, with no row late"):
                    computing.run_bounded(workspace.operator(LOSS_OF), places.complete, ALWAYS, late_rows="all")
            else:
                stop_spark()  # not in a finally: an error of Java's can be read only while it runs
            with progress.step(f"waiting for the unbounded process on {engine}"):
                outcome.followed[engine] = followed.result()
        except BaseException:  # Ctrl-C too: the other process is in a session of its own and would go on
            follower.cancel()
            raise


def stop_spark() -> None:
    """Stop Spark, if it runs, and its Java, so that the unbounded process has the machine to itself."""
    from pyspark.sql import SparkSession

    from floodmark.engines.spark.session.builder import stop_session

    spark = SparkSession.getActiveSession()
    if spark is not None:
        stop_session(spark)


def _land_topics(
    computing: Computing, workspace: Workspace, places: Places, progress: Progress, kafka: str
) -> list[Landed]:
    """Land the rows of the inbox from topics of Kafka, into which they are sent first."""
    with ExitStack() as stack:
        with progress.step(f"sending the inbox to Kafka at {kafka}"):
            names = stack.enter_context(topics(places.inbox, kafka))
        sources = [from_topic(source, names[source.name], kafka) for source in workspace.sources]
        return list(_land(computing, sources, places, progress))


def _land(computing: Computing, sources: Iterable[Source], places: Places, progress: Progress) -> Iterator[Landed]:
    for source in sources:
        begun = time.monotonic()
        with progress.step(f"landing {source.name}"):
            result = computing.land(source, places.landed, end=True, workspace=places.inbox.parent)
        seconds = time.monotonic() - begun
        progress.say(
            f"{source.name}: {result.rows:,} rows in {result.commits} commits, {result.rows / seconds:,.0f} rows/s"
        )
        yield Landed(
            source=source.name,
            rows=result.rows,
            commits=result.commits,
            quarantined=result.quarantined,
            seconds=seconds,
        )


def _compare(workspace: Workspace, places: Places, outcome: Outcome) -> None:
    oracle = Oracle(places.inbox, bound_minutes=_bound_minutes(workspace))
    for operator in workspace.operators:
        for output in operator.outputs:
            outcome.compared.append(_compared(oracle, places, output, outcome))
        if operator.stateful is not None:
            outcome.lateness[operator.name] = oracle.lateness(operator.name)
    outcome.loss = _loss(workspace.operator(LOSS_OF), places, outcome)


def _bound_minutes(workspace: Workspace) -> int:
    return int(getattr(workspace.source("flights").watermark, "bound", 0)) // 60_000


def _compared(oracle: Oracle, places: Places, output: Output, outcome: Outcome) -> Compared:
    """DuckDB's answer with each lake's final rows, and a revisable output's ``current`` table with its changelog."""
    answer = oracle.answer(output.table)
    tables: dict[str, pa.Table] = {}
    for engine, mode in product(outcome.engines, MODES):
        name, lake = f"{mode} on {engine}", places.ran(engine, mode)
        tables[name] = _final(lake, output, answer)
        if output.current:
            tables[f"{name} current"] = without_stamps(_existing(lake.output(output.current.table), answer))
    outcome.answers[output.table] = answer
    comparisons = [
        compare(table, answer.select(_shared(table, answer)), keys=output.keys, names=(name, "duckdb"))
        for name, table in tables.items()
    ]
    pairs = [(f"bounded on {engine}", f"unbounded on {engine}") for engine in outcome.engines]
    pairs += [(f"{mode} on {a}", f"{mode} on {b}") for mode in MODES for a, b in combinations(outcome.engines, 2)]
    comparisons += [compare(tables[a], tables[b], keys=output.keys, names=(a, b)) for a, b in pairs]
    return Compared(table=output.table, rows=answer.num_rows, comparisons=tuple(comparisons))


def _shared(table: pa.Table, answer: pa.Table) -> list[str]:
    """DuckDB also knows columns that no contract has."""
    return [name for name in table.column_names if name in answer.column_names]


def _final(lake: Lake, output: Output, answer: pa.Table) -> pa.Table:
    path = lake.output(output.table)
    return final(read(path), output) if commits(path) else answer.schema.empty_table()


def _existing(path: str, answer: pa.Table) -> pa.Table:
    return read(path) if commits(path) else answer.schema.empty_table()


def _loss(operator: Operator, places: Places, outcome: Outcome) -> pa.Table:
    """Per window: how many departures the landed answer lacks against the complete one. Only windows that lack some."""
    output = operator.outputs[0]
    keys = list(output.keys)
    complete = final(read(places.complete.output(output.table)), output).select([*keys, "departures"])
    landed = outcome.answers[output.table].select([*keys, "departures"]).rename_columns([*keys, "landed"])
    joined = complete.join(landed, keys, join_type="left outer").to_pylist()
    rows = [row | {"lost": row["departures"] - (row["landed"] or 0)} for row in joined]
    lost = sorted(
        (row for row in rows if row["lost"]), key=lambda row: (-row["lost"], row["window_start"], row["origin"])
    )
    return pa.Table.from_pylist(lost)


def lines(outcome: Outcome) -> Iterator[str]:
    """The result as text."""
    yield from (killed(engine, followed) for engine, followed in outcome.followed.items())
    for compared in outcome.compared:
        verdict = f"{compared.rows:,} rows, {compared.differences:,} differences"
        yield f"{compared.table}: bounded = unbounded, {' = '.join((*outcome.engines, 'duckdb'))}: {verdict}"
        for comparison in compared.comparisons:
            yield from (f"  {example}" for example in comparison.examples)
    yield from _late(outcome)
    yield from _rates(outcome)
    yield from outcome.contest.lines() if outcome.contest is not None else ()


def killed(engine: Engine, followed: Followed) -> str:
    """Where the unbounded process of an engine was killed, in words."""
    if followed.killed_after is None:
        return f"the unbounded process on {engine} was done before it could be killed"
    return f"the unbounded process on {engine} was killed (SIGKILL) after {followed.killed_after} commits and started again"


def _late(outcome: Outcome) -> Iterator[str]:
    for operator, one in outcome.lateness.items():
        yield f"late in {operator}: {one['late']:,}, of them {one['refired']:,} refired and {one['dropped']:,} dropped"
    if outcome.loss is not None and outcome.loss.num_rows:
        lost, windows = sum(outcome.loss["lost"].to_pylist()), outcome.loss.num_rows
        yield f"late loss of {LOSS_OF}: {lost:,} departures missing in {windows:,} windows against a run with no row late"


def _rates(outcome: Outcome) -> Iterator[str]:
    for name, rate in rates(outcome).items():
        yield f"{name}: {rate:,.0f} rows/s"


def rates(outcome: Outcome) -> Mapping[str, float]:
    """Rows of the log per second: of landing and of each run. The wall clock of this machine, start of Spark not counted."""
    found = {f"landing {one.source}": one.rows / one.seconds for one in outcome.landed}
    for engine in outcome.bounded:
        found |= {
            f"{name} bounded, {engine}": outcome.rows / r.seconds
            for name, r in outcome.bounded[engine].items()
            if r.seconds and name != "busiest_hour"
        }
        followed = outcome.followed.get(engine)
        first = WATCHED if followed and followed.killed_after is not None else ""
        found |= {
            f"{r['operator']} unbounded, {engine}": outcome.rows / r["seconds"]
            for r in (followed.runs if followed else ())
            if r["operator"] not in {first, "busiest_hour"}
        }
    return found
