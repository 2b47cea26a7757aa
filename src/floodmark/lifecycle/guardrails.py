"""Guardrails of a promotion: the conditions of a rule, each judged on evidence. Pure: the caller supplies the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from floodmark.core.time import describe, describe_span
from floodmark.lifecycle.comparison import Comparison
from floodmark.spec.assets.rollout import PromoteWhen

Verdict = Literal["holds", "waits", "fails"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrail:
    """One condition of a rule.

    Args:
        name: ``match of hourly``, ``lag``, ``soak``.
        wants: the condition of the rule, in words.
        sees: the observation, in words.
        verdict: ``waits`` if time alone may make the guardrail hold, ``fails`` if the evidence speaks against the arm.
    """

    name: str
    wants: str
    sees: str
    verdict: Verdict

    @property
    def holds(self) -> bool:
        """Whether the guardrail permits the promotion."""
        return self.verdict == "holds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence about an arm at one look.

    Args:
        comparisons: output -> its comparison with the first arm's, or why the output cannot be compared.
        state: of the arm's driver, in words.
        runs: whether the driver runs.
        given_up: whether the supervisor has stopped restarting the driver.
        behind: event time between the foremost of the stream and all arms, and this arm, ms; None if unknown.
        now: ms UTC.
    """

    comparisons: Mapping[str, Comparison | str]
    state: str
    runs: bool
    given_up: bool
    behind: int | None
    now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The guardrails of a rule at one look.

    Args:
        guardrails: in the order of display; soak and approval last.
        held_since: time of the look since which all guardrails but soak and approval have held, ms UTC; None while one of them does not hold.
    """

    guardrails: tuple[Guardrail, ...]
    held_since: int | None

    @property
    def holds(self) -> bool:
        """Whether the arm may be promoted."""
        return all(one.holds for one in self.guardrails)

    @property
    def awaits_approval(self) -> bool:
        """Whether approval is all that is missing."""
        return [one.name for one in self.guardrails if not one.holds] == ["approval"]

    @property
    def failing(self) -> tuple[Guardrail, ...]:
        """Guardrails that fail, and that time alone will not make hold."""
        return tuple(one for one in self.guardrails if one.verdict == "fails")


def judge(rule: PromoteWhen, seen: Evidence, held_since: int | None = None, approved: str = "") -> Judgement:
    """Judge an arm.

    Args:
        rule: the conditions.
        seen: the evidence of this look.
        held_since: of the judgement at the previous look.
        approved: the person who approved, and the time; ``""`` for no approval.
    """
    guardrails = [_running(seen), *_compared(rule, seen), *_punctual(rule, seen)]
    since = (held_since if held_since is not None else seen.now) if all(one.holds for one in guardrails) else None
    if rule.soak_ms:
        held = 0 if since is None else seen.now - since
        guardrails.append(
            Guardrail(
                name="soak",
                wants=f"all of these at every look for {describe_span(rule.soak_ms)}",
                sees="not all hold" if since is None else f"for {describe_span(held // 1000 * 1000)}",
                verdict="holds" if since is not None and held >= rule.soak_ms else "waits",
            )
        )
    if rule.approve:
        sees, verdict = (approved, _verdict(True)) if approved else ("nobody yet", _verdict(False))
        guardrails.append(Guardrail(name="approval", wants="a person's", sees=sees, verdict=verdict))
    return Judgement(guardrails=tuple(guardrails), held_since=since)


def _verdict(holds: bool) -> Verdict:  # noqa: FBT001 - of the word itself
    return "holds" if holds else "waits"


def _running(seen: Evidence) -> Guardrail:
    verdict: Verdict = "holds" if seen.runs else "fails" if seen.given_up else "waits"
    return Guardrail(name="arm", wants="a stream that runs", sees=seen.state, verdict=verdict)


def _compared(rule: PromoteWhen, seen: Evidence) -> Iterator[Guardrail]:
    compared = {table: comparison for table, comparison in seen.comparisons.items() if not isinstance(comparison, str)}
    every = sum(comparison.counts.rows for comparison in compared.values())
    wants = f"{rule.rows:,} compared or more"
    yield Guardrail(name="rows", wants=wants, sees=f"{every:,}", verdict=_verdict(every >= rule.rows))
    for table, comparison in seen.comparisons.items():
        if isinstance(comparison, str):
            yield Guardrail(
                name=f"match of {table}", wants="rows that can be compared", sees=comparison, verdict="fails"
            )
            continue
        yield _share(f"match of {table}", rule, comparison.counts.match, "of the rows the same")
        missing = ", ".join(column.name for column in comparison.not_compared if column.right is None)
        changed = ", ".join(f"{c.name} is {c.right}" for c in comparison.not_compared if c.right is not None)
        wrong = "; ".join(filter(None, (f"lacks {missing}" if missing else "", changed)))
        verdict: Verdict = "fails" if wrong else "holds"
        yield Guardrail(
            name=f"columns of {table}", wants="all of the first arm's", sees=wrong or "all are there", verdict=verdict
        )
    for column, bound in rule.columns.items():
        name, shares = (
            _of_column(column),
            [c.share for comparison in compared.values() for c in comparison.columns if c.name == column],
        )
        if shares:
            yield _share(name, rule, min(shares), f"of the pairs within {bound}")
        else:
            wants = f"{_percent(rule.match)} of the pairs within {bound}"
            yield Guardrail(name=name, wants=wants, sees="nothing compared", verdict="waits")
    for column, ratio in rule.means.items():
        yield _lower(column, ratio, compared.values())


def _lower(column: str, ratio: float, compared: Iterable[Comparison]) -> Guardrail:
    """Whether the mean of a column is lower than the first arm's by as much as the rule wants, in each output that has it."""
    name, wants = _of_mean(column), f"at most {_percent(ratio)} of the first arm's"
    pairs = [(c.left.mean, c.right.mean) for comparison in compared for c in comparison.columns if c.name == column]
    known = [(left, right) for left, right in pairs if left is not None and right is not None]
    if not known:
        return Guardrail(name=name, wants=wants, sees="nothing compared", verdict="waits")
    sees = "; ".join(f"{right:.6g} against {left:.6g}" for left, right in known)
    holds = all(right <= ratio * left for left, right in known)
    return Guardrail(name=name, wants=wants, sees=sees, verdict="holds" if holds else "fails")


def _of_mean(name: str) -> str:
    return f"mean of {name}"


def _of_column(name: str) -> str:
    """The name of a column's guardrail; the prefix keeps a column called ``lag`` apart from the guardrail ``lag``."""
    return f"column {name}"


def _share(name: str, rule: PromoteWhen, share: float, what: str) -> Guardrail:
    verdict: Verdict = "holds" if share >= rule.match else "fails"
    return Guardrail(name=name, wants=f"{_percent(rule.match)} {what}", sees=_percent(share), verdict=verdict)


def _percent(share: float) -> str:
    """A share in percent, never rounded up to a share that would hold."""
    text = f"{100 * share:.6g}"
    return f"{text}%" if float(text) <= 100 * share or share == 1 else f"{100 * share:.12g}%"


def _punctual(rule: PromoteWhen, seen: Evidence) -> Iterator[Guardrail]:
    if rule.lag_ms is not None:
        sees = "no micro-batch yet" if seen.behind is None else describe_span(seen.behind)
        holds = seen.behind is not None and seen.behind <= rule.lag_ms
        wants = f"at most {describe_span(rule.lag_ms)} of event time behind"
        yield Guardrail(name="lag", wants=wants, sees=sees, verdict=_verdict(holds))
    if rule.at_ms is not None:
        wants, holds = f"{describe(rule.at_ms)} or later", seen.now >= rule.at_ms
        yield Guardrail(name="time", wants=wants, sees=describe(seen.now), verdict=_verdict(holds))


def describe_unmet(guardrails: Iterable[Guardrail]) -> str:
    """The guardrails that do not hold, in words."""
    return "; ".join(f"{one.name}: wants {one.wants}, sees {one.sees}" for one in guardrails if not one.holds)


def names(rule: PromoteWhen, tables: Iterable[str]) -> list[str]:
    """Every guardrail a rule may have, for outputs of these tables."""
    shares = [f"{what} of {table}" for table in tables for what in ("match", "columns")]
    asked = {
        "lag": rule.lag_ms is not None,
        "time": rule.at_ms is not None,
        "soak": rule.soak_ms,
        "approval": rule.approve,
    }
    return [
        "arm",
        "rows",
        *shares,
        *map(_of_column, rule.columns),
        *map(_of_mean, rule.means),
        *(name for name, wanted in asked.items() if wanted),
    ]
