"""What a rule of promotion could never find the same is refused by the definitions alone, with all reasons at once."""

from __future__ import annotations

from typing import Any

import pytest
from events import Event
from streams import STREAMS

from floodmark import (
    AfterCount,
    Calendar,
    Global,
    Operator,
    Outputs,
    PromoteWhen,
    Session,
    Sliding,
    Stream,
    Tumbling,
    Within,
    count,
    operator,
    sum,
)
from floodmark.core.errors import LifecycleError
from floodmark.lifecycle.pairing import Results, check_paired

HOUR = Tumbling("1 hour")


def version(window: Any = HOUR, key: str = "key", total: str = "value", more: str = "", **options: Any) -> Operator:
    @operator
    def totals(events: Stream[Event]) -> Stream:
        keyed = events.with_columns(other="key").key_by(key).window(window, **options)
        found = keyed.aggregate(n=count(), total=sum(total))
        return found.with_columns(mean=more) if more else found

    return totals


RUNS = version()


def refused(after: Operator, before: Operator = RUNS, **rule: Any) -> str:
    """Why; an empty text where a rule may judge the two."""
    try:
        check_paired("rollout of 'totals'", "totals", Results.of(before), Results.of(after), PromoteWhen(**rule))
    except LifecycleError as error:
        return error.got
    return ""


def test_versions_of_one_grain_may_be_compared() -> None:
    assert not refused(RUNS)
    assert not refused(version(more="total / n")), "a column more"
    assert not refused(version(allowed_lateness="1 hour", late="side_output")), "other late rows"
    assert not refused(version(total="value * 2"))
    for one in STREAMS.values():
        assert not refused(one, one)


def test_another_key_is_another_grain() -> None:
    assert refused(version(key="other")) == "rows per other, and not rows per key; no column 'key' in 'totals'"
    assert "rows per other, and not rows per key" in refused(version(key="other"), match=0)
    assert "rows without a key, and not rows per key" in refused(STREAMS["plain"])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (HOUR, Tumbling("2 hours")),
        (HOUR, Tumbling("1 hour", offset="30 minutes")),
        (HOUR, Sliding("2 hours", "1 hour")),
        (Calendar("day"), Calendar("week")),
    ],
)
def test_windows_none_of_which_is_one_of_the_other_version(before: Any, after: Any) -> None:
    told = refused(version(after), version(before))
    assert "of which no window is one of" in told
    assert not refused(version(after), version(before), match=0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (HOUR, Sliding("1 hour", "10 minutes")),
        (Session("5 minutes"), Session("6 minutes")),
        (Session("1 hour"), HOUR),
        (HOUR, Tumbling("1 hour", offset="2 hours")),
        (Calendar("day"), Tumbling("1 day")),
    ],
)
def test_windows_some_of_which_may_be_the_same(before: Any, after: Any) -> None:
    assert not refused(version(after), version(before))


def test_columns_that_are_gone_or_of_another_type() -> None:
    assert refused(version(total="value / 2")) == "'total' of 'totals' as double, and not bigint"
    assert refused(RUNS, version(more="total / n")) == "no column 'mean' in 'totals'"


def test_a_rule_about_a_column_that_the_stream_does_not_have() -> None:
    told = refused(version(more="total / n"), columns={"mean": Within(1)})
    assert told == "a rule about 'mean', a column that the stream does not have"
    assert not refused(version(more="total / n"), columns={"total": Within(1)})


def test_results_that_are_replaced_at_any_later_time() -> None:
    running = version(Global(), trigger=AfterCount(1), accumulation="accumulating")
    assert "rows of 'totals' that replace earlier ones of the same key at any later time" in refused(running, running)


def test_outputs_that_are_gone() -> None:
    @operator
    def totals(events: Stream[Event]) -> Outputs:
        return Outputs(even=events.filter("value % 2 = 0"), odd=events.filter("value % 2 = 1"))

    both = totals

    @operator  # type: ignore[no-redef]
    def totals(events: Stream[Event]) -> Outputs:
        return Outputs(even=events.filter("value % 2 = 0"))

    assert refused(totals, both) == "no output 'totals__odd'"
    assert not refused(both, totals), "an output more"
