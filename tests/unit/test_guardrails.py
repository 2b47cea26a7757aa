"""Rules of promotion: what is refused when they are made, and what their guardrails say of what was found."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from small_lake import TOTALS

from floodmark import PromoteWhen, Rollout, Upgrades, Within, operator_asset
from floodmark.core.errors import DefinitionError
from floodmark.lifecycle.comparison import ColumnDifference, Comparison, Counts, Profile, SchemaDifference
from floodmark.lifecycle.guardrails import Evidence, Judgement, judge
from floodmark.spec.values.cron import check_cron

NONE = Profile(nulls=0, distinct=None)


def comparison(
    counts: Counts, columns: tuple[ColumnDifference, ...] = (), schema: tuple[SchemaDifference, ...] = ()
) -> Comparison:
    return Comparison(
        left="a",
        right="b",
        upto=None,
        grain=("key",),
        counts=counts,
        schema=schema,
        columns=columns,
        windows=(),
        more_windows=0,
        samples=(),
        seconds=0.1,
    )


def column(name: str, exact: int, within: int, different: int) -> ColumnDifference:
    return ColumnDifference(
        name=name, type="double", exact=exact, within=within, different=different, left=NONE, right=NONE
    )


def seen(*found: Comparison | str, **other: Any) -> Evidence:
    given: dict[str, Any] = {"state": "running", "runs": True, "given_up": False, "behind": 0, "now": 1_000_000}
    return Evidence(comparisons={f"out{n}": one for n, one in enumerate(found)}, **(given | other))


def verdicts(judgement: Judgement) -> dict[str, str]:
    return {one.name: one.verdict for one in judgement.guardrails}


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (lambda: PromoteWhen(match=1.2), "DEFINITION-161", "1.2"),
        (lambda: PromoteWhen(match=-0.1), "DEFINITION-161", "share of 0 to 1"),
        (lambda: PromoteWhen(match=True), "DEFINITION-161", "share of 0 to 1"),
        (lambda: PromoteWhen(match=float("nan")), "DEFINITION-161", "share of 0 to 1"),
        (lambda: PromoteWhen(match="most"), "DEFINITION-161", "'most'"),  # type: ignore[arg-type]
        (lambda: PromoteWhen(rows=0), "DEFINITION-161", "1 or more"),
        (lambda: PromoteWhen(columns={"total": 0.5}), "DEFINITION-161", "Within"),  # type: ignore[dict-item]
        (lambda: PromoteWhen(means={"error": 0}), "DEFINITION-161", "number above 0"),
        (lambda: PromoteWhen(means={"error": float("nan")}), "DEFINITION-161", "number above 0"),
        (lambda: PromoteWhen.parse(["mean error<=less"]), "DEFINITION-161", "'less'"),
        (lambda: PromoteWhen(lag="soon"), "DEFINITION-001", "'soon'"),
        (lambda: PromoteWhen(lag="-1 s"), "DEFINITION-161", "'-1 s'"),
        (lambda: PromoteWhen(every="0 s"), "DEFINITION-161", "every"),
        (lambda: PromoteWhen(at="sunday"), "DEFINITION-161", "'sunday'"),
        (lambda: PromoteWhen(approve="yes"), "DEFINITION-161", "True or False"),  # type: ignore[arg-type]
        (lambda: PromoteWhen.parse(["match>=0.9", "speed>3"]), "DEFINITION-161", "'speed>3'"),
        (lambda: PromoteWhen.parse(["match<=0.9"]), "DEFINITION-161", "'match<=0.9'"),
        (lambda: PromoteWhen.parse(["rows>=nan"]), "DEFINITION-161", "whole number"),
        (lambda: PromoteWhen.parse(["match>=10"]), "DEFINITION-161", "a percentage, as 10%"),
        (lambda: PromoteWhen.parse(["match>=most"]), "DEFINITION-161", "'most'"),
        (lambda: PromoteWhen.parse(["total within most"]), "DEFINITION-160", "'most'"),
        (lambda: Rollout(schedule="daily"), "DEFINITION-098", "'daily'"),
        (lambda: Rollout(schedule="0 3 * * sunday"), "DEFINITION-098", "day of week is 'sunday'"),
        (lambda: Rollout(watch="a while"), "DEFINITION-001", "'a while'"),
        (lambda: Rollout(promote=0.9), "DEFINITION-161", "PromoteWhen"),  # type: ignore[arg-type]
        (lambda: Rollout(ramp=(0.1, 0.1)), "DEFINITION-161", "each above the one before"),
        (lambda: Rollout(ramp=(0.5, 1)), "DEFINITION-161", "shares between 0 and 1"),
        (lambda: Rollout(ramp=(0, 0.5)), "DEFINITION-161", "got (0, 0.5)"),
        (lambda: Rollout(ramp=0.1), "DEFINITION-161", "got 0.1"),  # type: ignore[arg-type]
        (lambda: Rollout(ramp=("1%",)), "DEFINITION-161", "got ('1%',)"),  # type: ignore[arg-type]
        (lambda: Rollout(timezone="Mars"), "DEFINITION-002", "'Mars'"),
        (
            lambda: operator_asset(TOTALS, rollout=Rollout(promote=PromoteWhen(columns={"totl": Within(1)}))),
            "DEFINITION-162",
            "Did you mean 'total'?",
        ),
        (
            lambda: operator_asset(TOTALS, rollout=Rollout(promote=PromoteWhen(columns={"key": Within(1)}))),
            "DEFINITION-162",
            "which is string",
        ),
        (lambda: operator_asset(TOTALS, rollout=Rollout(), upgrades=Upgrades("0 3 * * sun")), "DEFINITION-097", "both"),
    ],
)
def test_a_rule_is_refused_when_it_is_made(make: Callable[[], object], code: str, words: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        make()
    assert refused.value.code == code
    assert words in str(refused.value)


def test_cron_expressions() -> None:
    for right in (
        "0 3 * * sun",
        "*/5 0-4,8 1 jan-mar 7",
        "0 0 1 12 0",
        "59 23 31 dec SAT",
        "0 0 29 2 *",
        "0 0 30,31 1-2 *",
    ):
        check_cron(right, "here", "there")
    for wrong in (
        "* * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "a * * * *",
        "0 0 30 feb *",
        "0 0 31 4,6 mon",
        "",
    ):
        with pytest.raises(DefinitionError, match="DEFINITION-098"):
            check_cron(wrong, "here", "there")


def test_a_rule_on_the_command_line_is_that_in_code() -> None:
    texts = ("match>=99.9%", "total within 0.5", "mean within 1%", "rows>=100", "lag<=30 s", "soak>=2 hours", "approve")
    assert PromoteWhen.parse(texts) == PromoteWhen(
        match=0.999,
        columns={"total": Within(0.5), "mean": Within(relative=0.01)},
        rows=100,
        lag="30 s",
        soak="2 hours",
        approve=True,
    )
    assert PromoteWhen.parse(["mean error<=95%", "mean cost <= 1.5"]) == PromoteWhen(means={"error": 0.95, "cost": 1.5})
    assert PromoteWhen.parse(["at>=2026-01-01T03:00Z", "every=5 s"]) == PromoteWhen(at="2026-01-01T03:00Z", every="5 s")


def test_guardrails_say_what_they_want_and_see() -> None:
    rule = PromoteWhen(match=0.9, columns={"total": Within(0.5)}, lag="30 s")
    found = comparison(
        Counts(equal=80, different=20),
        (column("total", 80, 15, 5),),
        (SchemaDifference(name="n", left="bigint", right=None),),
    )
    judgement = judge(rule, seen(found, "its rows have no key", behind=31_000))
    assert [(one.name, one.wants, one.sees, one.verdict) for one in judgement.guardrails] == [
        ("arm", "a stream that runs", "running", "holds"),
        ("rows", "1 compared or more", "100", "holds"),
        ("match of out0", "90% of the rows the same", "80%", "fails"),
        ("columns of out0", "all of the first arm's", "lacks n", "fails"),
        ("match of out1", "rows that can be compared", "its rows have no key", "fails"),
        ("column total", "90% of the pairs within 0.5", "95%", "holds"),
        ("lag", "at most 30 seconds of event time behind", "31 seconds", "waits"),
    ]


@pytest.mark.parametrize(
    ("left", "right", "verdict", "sees"),
    [
        (20.0, 19.0, "holds", "19 against 20"),
        (20.0, 19.1, "fails", "19.1 against 20"),
        (0.0, 0.0, "holds", "0 against 0"),
        (None, 3.0, "waits", "nothing compared"),
    ],
)
def test_the_arm_that_errs_less_holds(left: float | None, right: float | None, verdict: str, sees: str) -> None:
    means = [Profile(nulls=0, distinct=None, mean=mean) for mean in (left, right)]
    error = replace(column("error", 0, 0, 9), left=means[0], right=means[1])
    judgement = judge(PromoteWhen(match=0, means={"error": 0.95}), seen(comparison(Counts(different=9), (error,))))
    (guardrail,) = [one for one in judgement.guardrails if one.name == "mean of error"]
    assert (guardrail.verdict, guardrail.sees) == (verdict, sees)
    assert guardrail.wants == "at most 95% of the first arm's"


def test_a_share_below_the_rule_is_never_shown_as_the_rule() -> None:
    counts = Counts(equal=999_999_999, different=1)
    (guardrail,) = [
        one for one in judge(PromoteWhen(), seen(comparison(counts))).guardrails if one.name == "match of out0"
    ]
    assert (guardrail.verdict, guardrail.sees) == ("fails", "99.9999999%")


def test_nothing_compared_waits_and_an_arm_that_was_given_up_fails() -> None:
    assert verdicts(judge(PromoteWhen(), seen())) == {"arm": "holds", "rows": "waits"}
    assert not judge(PromoteWhen(), seen()).holds
    stopped = seen(comparison(Counts(equal=1)), runs=False)
    assert verdicts(judge(PromoteWhen(), stopped))["arm"] == "waits"
    crashed = seen(comparison(Counts(equal=1)), runs=False, given_up=True)
    assert verdicts(judge(PromoteWhen(), crashed))["arm"] == "fails"


def test_a_time_and_an_approval_are_waited_for() -> None:
    rule = PromoteWhen(at="1970-01-01T00:20Z", approve=True)
    early = judge(rule, seen(comparison(Counts(equal=1))))
    assert verdicts(early)["time"] == "waits"
    assert not early.awaits_approval
    then = judge(rule, seen(comparison(Counts(equal=1)), now=rule.at_ms))
    assert then.awaits_approval
    assert judge(rule, seen(comparison(Counts(equal=1)), now=rule.at_ms), approved="ann").holds


@pytest.mark.parametrize("seed", range(20))
def test_soak_asks_for_all_looks_in_a_row(seed: int) -> None:
    """Against all looks at once: the rule holds where the looks that held, without a break up to now, began early enough."""
    random_ = random.Random(seed)
    rule, now, since, looks = PromoteWhen(match=0.9, soak="10 s"), 1_000_000, None, list[tuple[int, bool]]()
    for _ in range(60):
        now += random_.randrange(500, 4000)
        good = random_.random() < 0.85
        counts = Counts(equal=95 if good else 85, different=5 if good else 15)
        judgement = judge(rule, seen(comparison(counts), now=now), since)
        since = judgement.held_since
        looks.append((now, good))
        unbroken = next((n for n, (_, held) in enumerate(reversed(looks)) if not held), len(looks))
        first = looks[len(looks) - unbroken][0] if unbroken else None
        assert judgement.holds == (first is not None and now - first >= 10_000)
