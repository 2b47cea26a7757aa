"""The verb prove: checks on the workspace's own rows that the bounded and the unbounded results of an operator are equal."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import opened_lake
from floodmark.core.errors import CapabilityError, ExecutionError
from floodmark.core.scratch import Scratch
from floodmark.core.time import END, NEVER, Interval, parse_instant, zone

if TYPE_CHECKING:
    from floodmark.cli.shell.loading import LoadedWorkspace
    from floodmark.spec.graph.operator import Operator
    from floodmark.spec.workspace import Engine
    from floodmark.testing.killed_proof import KilledProof
    from floodmark.testing.proof import Entry, Proof


@click.command()
@click.argument("operator")
@click.option("--from", "start_text", metavar="TIME", help="Prove results from this time on. Default: all.")
@click.option("--to", "end_text", metavar="TIME", help="Prove results before this time. Default: all.")
@click.option("--timezone", default="UTC", show_default=True, help="Time zone of times without an offset.")
@click.option("--cuts", type=click.IntRange(min=1), default=20, show_default=True, help="Unbounded runs to compare.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the first unbounded run.")
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="Most rows of each input, the first to arrive.",
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="If results differ, write the smallest sample to this file, as a pytest test.",
)
@click.option(
    "--spark",
    is_flag=True,
    help="Also prove on Spark: a stream that is killed with SIGKILL and restarted, and a bounded run. About two minutes.",
)
@click.option(
    "--embedded",
    is_flag=True,
    help="Also prove so on the embedded engine: about ten seconds. Can be given with --spark.",
)
@shared
@pass_invocation
def prove(  # noqa: PLR0913 - one per option
    invocation: Invocation,
    *,
    operator: str,
    start_text: str | None,
    end_text: str | None,
    timezone: str,
    cuts: int,
    seed: int,
    rows: int,
    save: Path | None,
    spark: bool,
    embedded: bool,
) -> None:
    """Compare a bounded run of OPERATOR with unbounded runs at random cuts with restarts, on rows of its inputs.

    Writes nothing to the lake; starts Spark only with --spark.
    """
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    chosen = opened.workspace.operator(operator)
    zone(timezone, "--timezone")
    if spark:
        from floodmark.engines.spark.setup import jars

        jars.fetch()
    clocked = chosen.stateful is not None and chosen.stateful.clocked
    wanted: dict[Engine, bool] = {"embedded": embedded, "spark": spark}
    engines = [engine for engine, asked in wanted.items() if asked]
    if clocked and not engines:
        fix = f"Prove it on an engine, where a stream records the clock and a bounded run replays it: floodmark prove {chosen.name} --embedded"
        got = "one that waits for processing time, which stands still here"
        raise CapabilityError(f"prove of '{chosen.name}'", "an operator of event time", got, fix, code="CAPABILITY-005")
    interval = Interval(
        start=NEVER if start_text is None else parse_instant(start_text, "--from", timezone),
        end=END + 1 if end_text is None else parse_instant(end_text, "--to", timezone),
    )
    from floodmark.lake.folder.paths import Lake
    from floodmark.observe.sample import sample
    from floodmark.testing.proof import Proof, as_test

    lake = Lake.of(opened.workspace.settings)
    for warning in chosen.warnings:
        console.note(f"warning: {warning}")
    with console.step(f"reading the inputs of {chosen.version}"):
        entries = sample(chosen, lake, interval, rows)
    if not entries:
        fix = "Widen --from and --to, or land rows first."
        raise ExecutionError(f"inputs of '{chosen.name}'", f"rows for {interval}", "none", fix, code="EXECUTION-008")
    if clocked:
        proof = Proof(rows=len(entries), results=0, cuts=0)
    else:
        proof = _locally(console, chosen, entries, cuts=cuts, seed=seed, spark=spark)
    if proof.seed is not None and save is not None:
        save.parent.mkdir(parents=True, exist_ok=True)
        save.write_text(as_test(chosen, proof))
        console.say(f"saved as a test: pytest {save}")
    document: dict[str, Any] = {"lake": opened.lake, "operator": chosen.version, "interval": str(interval)}
    document |= _document(proof)
    wrong = proof.seed is not None
    for engine in engines if not wrong else ():
        killed = _by_killing(engine, opened, console, chosen, entries, seed)
        document[engine] = asdict(killed)
        wrong = wrong or bool(killed.differences)
    console.document(document)
    if wrong:
        raise SystemExit(1)


def _locally(console: Console, operator: Operator, entries: list[Entry], *, cuts: int, seed: int, spark: bool) -> Proof:
    """Prove an operator in memory. The proof is empty if the embedded engine refuses an expression and Spark proves the operator anyway."""
    from floodmark.testing.proof import Proof
    from floodmark.testing.proof import prove as proven

    try:
        with console.step(f"{len(entries):,} rows, bounded and {cuts} times unbounded"):
            proof = proven(operator, entries, cuts=cuts, seed=seed)
    except CapabilityError as refusal:
        if not spark or refusal.code != "CAPABILITY-031":
            raise
        console.note(f"proven on Spark alone: {refusal.got}")
        return Proof(rows=len(entries), results=0, cuts=0)
    _say(console, operator.version, proof)
    return proof


def _by_killing(
    engine: Engine, opened: LoadedWorkspace, console: Console, operator: Operator, entries: list[Entry], seed: int
) -> KilledProof:
    from floodmark.testing.killed_proof import prove_by_killing

    name, settings = {"spark": "Spark", "embedded": "the embedded engine"}[engine], opened.workspace.settings
    with (
        console.step(f"the same on {name}, through a SIGKILL"),
        Scratch() as folder,
    ):
        proof = prove_by_killing(engine, operator, entries, str(folder), settings, seed=seed)
    how = f"killed at {proof.killed_at} and started again" if proof.killed_at else "done before it could be killed"
    if not proof.differences:
        console.say(f"on {name}: the stream, {how}, gave the {proof.results:,} results of the bounded run")
        return proof
    console.say(f"on {name}: the stream, {how}, differs from the bounded run")
    for line in proof.differences:
        console.say(f"  {line}")
    return proof


def _say(console: Console, version: str, proof: Proof) -> None:
    if proof.seed is None:
        console.say(
            f"{version}: {proof.cuts} unbounded runs over {proof.rows:,} rows gave the {proof.results:,} results of the bounded run"
        )
        if not proof.results:
            console.say("warning: no results at all prove little; widen --from and --to, or see floodmark explain")
        return
    console.say(f"{version}: the unbounded run of seed {proof.seed} differs from the bounded run")
    for line in proof.differences:
        console.say(f"  {line}")
    console.say(f"the fewest rows that still differ: {len(proof.sample)}")
    for name, row in proof.sample[:20]:
        console.say(f"  {name}: {_row_text(row)}")
    console.say(f"again: floodmark prove {version.split('@', maxsplit=1)[0]} --seed {proof.seed} --cuts 1")


def _row_text(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.items() if name not in {"_progress", "_kind"})


def _document(proof: Proof) -> dict[str, Any]:
    def plain(entry: Entry) -> dict[str, Any]:
        return {"input": entry[0], **{name: str(value) for name, value in entry[1].items()}}

    return {
        "rows": proof.rows,
        "results": proof.results,
        "cuts": proof.cuts,
        "equal": proof.seed is None,
        "seed": proof.seed,
        "differences": list(proof.differences),
        "sample": [plain(entry) for entry in proof.sample],
    }
