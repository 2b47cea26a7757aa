"""Cut-overs by event time, as data: results before an instant remain those of the old version, later results are the new version's.

The end of a window decides which version owns the window, and with it the window's late rows. The old version need not keep running
for those late rows: a cut-over lies where results are final, so that no late row revises them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from floodmark.compiler.paths import Node
from floodmark.core.errors import LifecycleError
from floodmark.core.time import END, describe, parse_instant
from floodmark.lifecycle.plan import stateful_step

CLOSED: Literal["closed"] = "closed"
"""The latest possible cut-over: all results before it are final in both versions."""
_ENDING = ("Tumbling", "Sliding", "Cumulative", "Calendar", "Session")
"""Windows that end at an instant: their results are final ``allowed_lateness`` after that instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverPlan:
    """Where results of one version end and those of another begin.

    Args:
        at: results whose ``_event_time`` is before this instant remain unchanged, ms; ``_event_time`` of a window is its last instant.
        since: the first ``_sequence`` of results since the versions diverged; None where rows keep the ``_sequence`` of the input.
        staying: output -> version of the table whose rows remain.
    """

    at: int
    since: int | None
    staying: Mapping[str, int]


def parse(text: str, where: str) -> int | None:
    """An instant in ms, or None for ``closed``.

    Raises:
        LifecycleError: LIFECYCLE-002, the text is neither an instant nor ``closed``.
    """
    return None if text == CLOSED else parse_instant(text, where)


def numbered(graph: Node) -> bool:
    """Whether results have a ``_sequence`` of their own; without a stateful step they keep the ``_sequence`` of their input row."""
    return stateful_step(graph) is not None


def final(graph: Node, progress: int, where: str) -> int:
    """The instant before which all results are final.

    Args:
        graph: of the operator, in its canonical form.
        progress: progress of its stream, ms.
        where: for errors.

    Raises:
        LifecycleError: LIFECYCLE-110, results of any time may change.
    """
    step = stateful_step(graph)
    if step is None:
        return min(progress + 1, END)
    if step["step"] == "window_aggregate" and step.get("time", "event") == "event":
        if step["window"]["kind"] in _ENDING:
            return min(progress + 1 - int(step["allowed_lateness"]), END) if progress < END else END
        got = f"'{step['uid']}', whose windows are {step['window']['kind']}"
    else:
        got = f"'{step['uid']}', a step {step['step']}{' in processing time' if 'time' in step else ''}"
    fix = "Leave the cut-over out: all results since the versions parted are the new one's then."
    expected = "windows of event time, or rows without state, which are final at some instant"
    raise LifecycleError(where, expected, got, fix, code="LIFECYCLE-110")


def chosen(wanted: int | None, latest: int, where: str) -> int:
    """The instant of a cut-over.

    Args:
        wanted: requested cut-over, ms; None for the latest.
        latest: latest possible cut-over, ms.
        where: for errors.

    Raises:
        LifecycleError: LIFECYCLE-111, ``wanted`` is later than ``latest``.
    """
    if wanted is None or wanted <= latest:
        return latest if wanted is None else wanted
    fix = "Wait until the stream has come so far, or take an earlier one; 'closed' is the latest there is."
    expected = f"at {describe(latest)} or before, where results are final"
    raise LifecycleError(where, expected, describe(wanted), fix, code="LIFECYCLE-111")
