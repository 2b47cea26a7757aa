"""Outputs whose rows take back rows of any event time, as a stream has followed a rebuild: who may read them, and who passes that on."""

from __future__ import annotations

from floodmark.compiler.following import obstacle
from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table import entries, history
from floodmark.lake.table.commits import Revised
from floodmark.lake.writing.writer import Writer, committed
from floodmark.spec.graph.operator import Input, Operator


def check(operator: Operator, lake: Lake) -> None:
    """Check that an operator whose results depend on event time reads no table whose stream has followed a rebuild as a difference.

    Rows of the difference are late for such an operator: what they take back would stay in its results.

    Raises:
        LifecycleError: LIFECYCLE-045, it does.
    """
    for input_ in operator.inputs:
        followers = _followers(input_, lake)
        reason = obstacle(operator.canonical()) if followers else ""
        if reason:
            where = f"operator '{operator.name}', input '{input_.name}'"
            expected = "rows in the order of their event time"
            got = f"those of a stream that has followed a rebuild, and {reason}"
            fix = "; ".join(f"floodmark run {one} --unbounded --from-scratch --until-caught-up" for one in followers)
            raise LifecycleError(where, expected, got, f"Compute anew first: {fix}", code="LIFECYCLE-045")


def inherit(operator: Operator, lake: Lake, app: str) -> None:
    """Record in the tables of a stream that begins that it reads such a table. Repeatable.

    Args:
        operator: of the stream.
        lake: in which the stream runs.
        app: application id of the stream's commits, in front of a table's name.
    """
    for followers in filter(None, (_followers(input_, lake) for input_ in operator.inputs)):
        for output in operator.outputs:
            record = Revised(operator=followers[0], version="")
            note(lake.output(output.table), f"{app}/{output.table}/revised", record)


def follow(operator: Operator, lake: Lake, app: str) -> None:
    """Record in the tables of a stream that it is about to follow a rebuild, where they do not say so, as after a rollback. Arguments as for ``inherit``."""
    for output in operator.outputs:
        path = lake.output(output.table)
        if not history.revised(path):
            note(path, f"{app}/{output.table}/followed", Revised(operator=operator.name, version=operator.version))


def note(path: str, app: str, record: Revised) -> None:
    """Record in a table, if it exists, that its rows may take back rows of any event time. Does nothing if ``app`` has committed to the table before."""
    if entries.is_table(path) and committed(path, app) is None:
        history.will_be_revised(path)
        Writer(path).note(record, (app, 1))


def _followers(input_: Input, lake: Lake) -> tuple[str, ...]:
    """The operators, upstream first, whose tables an input reads, directly or through others, and which take back rows of any event time."""
    if input_.upstream is None:
        return ()
    upstream = input_.upstream.operator
    before = tuple(name for one in upstream.inputs for name in _followers(one, lake))
    own = bool(before) or history.revised(lake.input(input_))
    return tuple(dict.fromkeys((*before, upstream.name))) if own else ()
