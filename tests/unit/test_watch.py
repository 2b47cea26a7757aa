"""The watch after a promotion: what takes it back, from what is seen and what looks before have seen."""

from __future__ import annotations

from typing import Any

import pytest

from floodmark import PromoteWhen, Rollout
from floodmark.core.errors import DefinitionError
from floodmark.lifecycle.guardrails import describe_unmet
from floodmark.lifecycle.watch import ASIDE, GUARDRAILS, LAG, STREAM, Memory, Seen, expectations, names, watched

DECLARED = Rollout(promote=PromoteWhen(lag="30 s"), catch_up="10 minutes")
MEMORY = Memory(after=4, share=0.0)


def seen(**values: Any) -> Seen:
    given: dict[str, Any] = {"state": "running", "wanted": True, "given_up": "", "lag": 0, "rows": 1000, "aside": 0}
    return Seen(**(given | {"now": 1_000_000} | values))


def verdicts(look: Seen, memory: Memory = MEMORY, declared: Rollout = DECLARED) -> dict[str, str]:
    return {one.name: one.verdict for one in watched(declared, look, memory)[0]}


def test_a_stream_that_gets_on_holds() -> None:
    assert verdicts(seen()) == {STREAM: "holds", LAG: "holds", ASIDE: "holds"}
    assert LAG not in verdicts(seen(), declared=Rollout()), "a rule without lag judges none"
    assert list(names(DECLARED, expected=True)) == list(GUARDRAILS)
    assert list(names(Rollout(), expected=False)) == [STREAM, ASIDE]


def test_a_stream_that_is_given_up_fails_with_the_reason() -> None:
    (guardrail, *_), _ = watched(DECLARED, seen(given_up="it has crashed 5 times: no memory"), MEMORY)
    assert (
        describe_unmet([guardrail]) == "watch: stream: wants a stream that runs, sees it has crashed 5 times: no memory"
    )
    assert guardrail.verdict == "fails"


def test_lag_fails_where_it_lasts_and_only_then() -> None:
    behind = seen(lag=31_000)
    guardrails, since = watched(DECLARED, behind, MEMORY)
    assert (since, guardrails[1].verdict) == (1_000_000, "waits")
    memory = Memory(after=4, share=0.0, late_since=since)
    assert verdicts(seen(lag=31_000, now=1_599_999), memory)[LAG] == "waits"
    guardrails, _ = watched(DECLARED, seen(lag=31_000, now=1_600_000), memory)
    assert guardrails[1].sees == "31 seconds behind, more than that for 10 minutes"
    assert guardrails[1].verdict == "fails"
    for better in (seen(lag=30_000, now=1_600_000), seen(lag=None), seen(lag=31_000, wanted=False, now=1_600_000)):
        guardrails, since = watched(DECLARED, better, memory)
        assert (since, guardrails[1].verdict) == (None, "holds")


@pytest.mark.parametrize(
    ("rows", "aside", "before", "fails"),
    [
        (1000, 0, 0.0, False),
        (1000, 9, 0.0, False),  # a few say little
        (1000, 10, 0.0, True),
        (20_000, 20, 0.0, False),  # one of a thousand
        (20_000, 21, 0.0, True),
        (1000, 100, 0.01, False),  # ten times as many
        (1000, 101, 0.01, True),
        (0, 0, 0.5, False),
    ],
)
def test_rows_set_aside_fail_where_they_are_far_more_than_before(
    rows: int, aside: int, before: float, fails: bool
) -> None:
    found = verdicts(seen(rows=rows, aside=aside), Memory(after=4, share=before))
    assert (found[ASIDE] == "fails") == fails


def test_expectations_are_looked_at_as_what_was_written_grows() -> None:
    """All looks together read a few times what was written, and none comes a long time after what it is about."""
    assert not MEMORY.due(4, over=True), "nothing was written"
    memory, read, last = MEMORY, 0, 4
    for batch in range(5, 4000):
        if memory.due(batch, over=False):
            assert batch - 4 <= max(1.25 * (last - 4) + 1, 1)
            read, last = read + batch - 4, batch
            memory = Memory(after=4, share=0.0, expected=batch)
    assert read < 6 * 4000
    assert memory.due(4000, over=True)
    assert not memory.due(last, over=True), "it was looked at"


def test_expectations_say_what_is_not_met_and_what_cannot_be_looked_at() -> None:
    assert expectations([]).verdict == "holds"
    assert (expectations(["a", "b"]).verdict, expectations(["a", "b"]).sees) == ("fails", "a; b")
    assert expectations([], "no such package").verdict == "waits"


def test_a_time_to_catch_up_is_a_span() -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-161.*catch_up"):
        Rollout(catch_up="-1 s")
