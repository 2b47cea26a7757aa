"""Cut-overs by event time, as decided: which results of a stream stay as one version has made them, and from when on another one's count.

The owner of a window is the version whose it is by the window's end, and so the owner of rows that come late for it. That holds without
both versions running for ever, because a cut-over lies where no late row changes anything any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from floodmark.core.errors import LifecycleError
from floodmark.core.time import END, describe, parse_instant
from floodmark.lifecycle.change import Node
from floodmark.lifecycle.plan import stateful_step

CLOSED: Literal["closed"] = "closed"
"""The latest cut-over there is: before it all results are final in both versions."""
_ENDING = ("Tumbling", "Sliding", "Calendar", "Session")
"""Windows that end at an instant, after which and ``allowed_lateness`` no row changes their results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Where results of one version end and those of another begin.

    Args:
        at: results whose ``_event_time`` is before it stay as they are, ms; a window's is the last instant in it.
        since: the first ``_sequence`` of results since the versions parted; None where rows keep the ``_sequence`` of the input.
        staying: output -> version of the table whose rows stay.
    """

    at: int
    since: int | None
    staying: Mapping[str, int]


def parse(text: str, where: str) -> int | None:
    """An instant in ms, or None for ``closed``.

    Raises:
        LifecycleError: LIFECYCLE-002, neither.
    """
    return None if text == CLOSED else parse_instant(text, where)


def numbered(graph: Node) -> bool:
    """Whether results have a ``_sequence`` of their own, rather than that of the rows they are."""
    return stateful_step(graph) is not None


def final(graph: Node, settled: int, where: str) -> int:
    """The instant before which no result changes any more.

    Args:
        graph: of the operator, in its canonical form.
        settled: progress of its stream, ms.
        where: for errors.

    Raises:
        LifecycleError: LIFECYCLE-110, results of any time may change.
    """
    step = stateful_step(graph)
    if step is None:
        return min(settled + 1, END)
    if step["step"] == "window_aggregate" and step.get("time", "event") == "event":
        if step["window"]["kind"] in _ENDING:
            return min(settled + 1 - int(step["allowed_lateness"]), END) if settled < END else END
        got = f"'{step['uid']}', whose windows are {step['window']['kind']}"
    else:
        got = f"'{step['uid']}', a step {step['step']}{' in processing time' if 'time' in step else ''}"
    fix = "Leave the cut-over out: all results since the versions parted are the new one's then."
    expected = "windows of event time, or rows without state, which are final at some instant"
    raise LifecycleError(where, expected, got, fix, code="LIFECYCLE-110")


def chosen(wanted: int | None, latest: int, where: str) -> int:
    """The instant of a cut-over.

    Args:
        wanted: ms; None for the latest.
        latest: there may be, ms.
        where: for errors.

    Raises:
        LifecycleError: LIFECYCLE-111, it is later.
    """
    if wanted is None or wanted <= latest:
        return latest if wanted is None else wanted
    fix = "Wait until the stream has come so far, or take an earlier one; 'closed' is the latest there is."
    expected = f"at {describe(latest)} or before, where results are final"
    raise LifecycleError(where, expected, describe(wanted), fix, code="LIFECYCLE-111")
