"""The verb diff: compares two outputs, versions of one table, or tables of two lakes."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, asked, pass_invocation, shared
from floodmark.cli.shell.loading import opened_lake
from floodmark.core.errors import LifecycleError
from floodmark.core.time import describe, parse_instant
from floodmark.lifecycle.requests import ComparisonRequest

if TYPE_CHECKING:
    from floodmark.lake.folder.paths import Lake
    from floodmark.lifecycle.comparison import ColumnDifference, Comparison
    from floodmark.observe.comparison.sides import Side
    from floodmark.spec.graph.operator import Operator, Output
    from floodmark.spec.workspace import Workspace

_WIDEST = 40
"""Most characters shown of a value."""


@click.command()
@click.argument("table")
@click.argument("other", required=False)
@click.option("--against", metavar="LAKE", help="Lake that OTHER is in: a fork, or another environment's.")
@click.option(
    "--key", multiple=True, metavar="COLUMN", help="Column by which rows are paired. Default: the operator's keys."
)
@asked(ComparisonRequest)
@click.option(
    "--upto",
    metavar="TIME",
    help="Compare rows before this event time. Default: up to the progress of the slower table.",
)
@click.option("--all", "everything", is_flag=True, help="Compare all rows, whatever the progress of the tables.")
@click.option(
    "--samples", type=click.IntRange(min=0), default=5, show_default=True, help="Rows shown of each kind of difference."
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the comparison as an HTML page.",
)
@click.option("--spill", type=click.Path(exists=True, file_okay=False), metavar="FOLDER", help="Folder to spill into.")
@shared
@pass_invocation
def diff(  # noqa: PLR0913 - one per option
    invocation: Invocation,
    *,
    table: str,
    other: str | None,
    against: str | None,
    key: tuple[str, ...],
    request: ComparisonRequest,
    upto: str | None,
    everything: bool,
    samples: int,
    html: Path | None,
    spill: str | None,
) -> None:
    """Compare TABLE with OTHER, each an output or the path of a Delta table, followed by @VERSION or @SAVEPOINT for a version other than the newest.

    The exit status is 0 if both have the same columns and at least --match of the rows are the same, otherwise 1.
    """
    if other is None and against is None:
        msg = "compare it with what? Give OTHER (hourly@12), or --against LAKE for the table of that name there"
        raise click.UsageError(msg)
    if upto is not None and everything:
        msg = "--upto leaves rows out, --all does not: give one of them"
        raise click.UsageError(msg)
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.lake.folder.paths import Lake
    from floodmark.observe.comparison.compare import How, compare

    lake = Lake.of(opened.workspace.settings)
    right = lake if against is None else lake_of(against)
    sides = (
        _side(opened.workspace, lake, table),
        _side(opened.workspace, right, table if other is None else other, prefix="" if against is None else right.root),
    )
    how = How(
        grain=key,
        tolerances=request.bounds,
        without=request.without,
        upto=None if upto is None else parse_instant(upto, "--upto"),
        everything=everything,
        samples=samples,
        memory=request.memory,
        spill=spill,
    )
    with console.step(f"{sides[0].name} and {sides[1].name}"):
        comparison = compare(*sides, how)
    say(console, comparison)
    if html is not None:
        from floodmark.observe.comparison.page import page

        html.write_text(page(comparison), "utf-8")
        console.say(f"page: {html}")
    same = not comparison.schema and comparison.counts.match >= request.match
    console.document({"lake": opened.lake, "same": same, "match": comparison.counts.match, **asdict(comparison)})
    if not same:
        raise SystemExit(1)


def lake_of(root: str) -> Lake:
    """(root) -> the lake of floodmark's at that root.

    Raises:
        LifecycleError: LIFECYCLE-084, there is no lake at the root.
    """
    from floodmark.lake.folder.paths import Lake

    lake = Lake.forked(root) or Lake(root)
    if not lake.there:
        fix = "Name the root of a lake, as in resources/settings.py."
        raise LifecycleError("--against", "a lake of floodmark's", f"none at {lake.root}", fix, code="LIFECYCLE-084")
    return lake


def _side(workspace: Workspace, lake: Lake, reference: str, prefix: str = "") -> Side:
    from dataclasses import replace

    from deltalake import DeltaTable

    from floodmark.observe.comparison.sides import Side

    name, sign, at = reference.rpartition("@")
    if not sign or ("/" in reference and DeltaTable.is_deltatable(reference)):  # a path may contain @
        name, sign = reference, ""
    path = name if "/" in name else lake.output(name)
    operator, output = _written_by(workspace, name.rstrip("/").rsplit("/", 1)[-1])
    side = Side.of(path, output, operator, _version(lake, name, at) if sign else None)
    return replace(side, name=f"{prefix}:{side.name}") if prefix else side


def _written_by(workspace: Workspace, table: str) -> tuple[Operator | None, Output | None]:
    """(operator that writes a table, its output); (None, None) if no operator writes the table."""
    for operator in workspace.operators:
        for output in operator.outputs:
            for candidate in filter(None, (output, output.current)):
                if candidate.table == table:
                    return operator, candidate
    return None, None


def _version(lake: Lake, table: str, at: str) -> int:
    """(version number, or savepoint) -> the version of a table.

    Raises:
        LifecycleError: LIFECYCLE-085, the savepoint does not hold the table.
    """
    from floodmark.lake.restore import savepoints

    if at.isdecimal():
        return int(at)
    known = {one.table: one.version for one in savepoints.find(lake, at).manifest.outputs}
    if table not in known:
        fix = f"It holds {', '.join(known)}."
        raise LifecycleError(f"savepoint '{at}'", f"one that holds '{table}'", "one without", fix, code="LIFECYCLE-085")
    return known[table]


def say(console: Console, comparison: Comparison) -> None:
    """Print the result of a comparison."""
    counts = comparison.counts
    rows = f"rows before {describe(comparison.upto)}" if comparison.upto is not None else "all rows"
    paired = (
        f"paired by {', '.join(comparison.grain)}" if comparison.grain else "as a whole: no key is known (--key COLUMN)"
    )
    console.say(f"{comparison.left} with {comparison.right}: {rows}, {paired}")
    for column in comparison.schema:
        console.say(
            f"  column {column.name}: {column.left or 'not there'} on the left, {column.right or 'not there'} on the right"
        )
    console.table(
        ("rows", "left", "right"),
        [
            ("the same", counts.equal, counts.equal),
            *([("within tolerance", counts.within, counts.within)] if counts.within else []),
            ("different", counts.different, counts.different),
            ("only here", counts.only_left, counts.only_right),
            ("all", counts.left, counts.right),
        ],
    )
    _say_columns(console, comparison)
    _say_places(console, comparison)
    if counts.same and not comparison.schema:
        verdict = "the same" if not counts.within else f"the same but for {counts.within:,} rows within tolerance"
        console.say(f"{verdict} ({comparison.seconds:.1f} s)")
    else:
        console.say(f"{100 * counts.match:.6g}% of the rows are the same ({comparison.seconds:.1f} s)")


def _say_columns(console: Console, comparison: Comparison) -> None:
    columns = ("column", "same", "different", "mean left", "mean right", "most apart", "distributions apart")
    console.table(columns, [_column(column) for column in comparison.changed])
    for column in comparison.changed:
        for left, right, pairs in column.top:
            console.say(f"    {column.name}: {_cell(left)} -> {_cell(right)} in {pairs:,} rows")
    for column in comparison.columns:
        if column.drift is not None:
            console.say(f"  {column.name}, right minus left: {column.drift}")


def _say_places(console: Console, comparison: Comparison) -> None:
    if comparison.windows:
        rows_of = [
            (describe(w.start), describe(w.end), w.different, w.only_left, w.only_right) for w in comparison.windows
        ]
        console.table(("from", "to", "different", "only left", "only right"), rows_of)
        if comparison.more_windows:
            console.say(f"    and {comparison.more_windows:,} more")
    for sample in comparison.samples:
        for sign, row in (("-", sample.left), ("+", sample.right)):
            if row is not None:
                console.say(f"  {sign} {', '.join(f'{name} {_cell(value)}' for name, value in row.items())}")
        if sample.why:
            console.say(f"    {sample.why}")


def _column(difference: ColumnDifference) -> tuple[object, ...]:
    means = (
        ("", "")
        if difference.left.mean is None
        else (f"{difference.left.mean:.6g}", f"{difference.right.mean or 0:.6g}")
    )
    most = "" if difference.most is None else f"{difference.most:.6g}"
    return (
        difference.name,
        difference.exact + difference.within,
        difference.different,
        *means,
        most,
        "" if difference.distance is None else f"{difference.distance:.3f}",
    )


def _cell(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
