"""Expectations of a contract that a landing judges before it commits: which rows are set aside, and what the others come to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from floodmark.core.errors import ExecutionError
from floodmark.engines.landing.units import Report
from floodmark.spec.rows.criteria import judged_landing
from floodmark.spec.rows.criterion import COUNTED, EXAMPLES, ROWS, SHOWN, UNEXPECTED, RowCriterion
from floodmark.spec.rows.source import Source

Refused = Mapping[int, Mapping[int, str]]
"""Unit -> index among its rows that keep the contract -> why that row is refused."""


@dataclass(frozen=True, slots=True)
class Count:
    """What an expectation comes to over some rows that land.

    Args:
        rows: of them.
        counted: of these, those that can meet the expectation or not.
        unexpected: of these, those that do not meet it.
        examples: texts of some of the latter.
    """

    rows: int = 0
    counted: int = 0
    unexpected: int = 0
    examples: tuple[str, ...] = ()

    def plus(self, other: Count) -> Count:
        """Over these and other rows."""
        return Count(
            self.rows + other.rows,
            self.counted + other.counted,
            self.unexpected + other.unexpected,
            (*self.examples, *other.examples)[:SHOWN],
        )


Counts = Mapping[int, Mapping[str, Count]]
"""Unit -> expectation -> what it comes to."""


def criteria_of(source: Source) -> tuple[RowCriterion, ...]:
    """The criteria of a source's contract that its landing judges."""
    return judged_landing(source.contract.floodmark_expectations, source.schema)


def reason(criterion: RowCriterion) -> str:
    """Why a row is set aside, for people."""
    return f"expectation '{criterion.expectation.name}': the row does not meet {criterion.expectation.describe()}"


def after(before: Refused, later: Refused) -> Refused:
    """The refused rows of two judgements one after the other.

    Args:
        before: of the first.
        later: of the second, whose indices count only rows that the first has let through.
    """
    refused = {unit: dict(rows) for unit, rows in before.items()}
    for unit, rows in later.items():
        taken, index, passed = before.get(unit, {}), 0, 0
        for wanted in sorted(rows):
            while passed <= wanted:
                passed += index not in taken
                index += 1
            refused.setdefault(unit, {})[index - 1] = rows[wanted]
    return refused


def counted(reports: Iterable[Report], counts: Counts) -> list[Report]:
    """The reports with what their expectations come to."""
    return [replace(report, judged=counts.get(report.unit, {})) for report in reports]


def check_met(source: Source, reports: Sequence[Report]) -> dict[str, int]:
    """Expectation -> rows of a commit that do not meet it, of those that a landing counts.

    Args:
        source: of the units.
        reports: of those that land.

    Raises:
        ExecutionError: EXECUTION-090, one with ``on_fail="stop"`` is not met; nothing of the commit is written.
    """
    totals: dict[str, Count] = defaultdict(Count)
    for report in reports:
        for name, count in report.judged.items():
            totals[name] = totals[name].plus(count)
    unmet, stopping = dict[str, int](), list[str]()
    for criterion in criteria_of(source) if totals else ():
        expectation, count = criterion.expectation, totals.get(criterion.expectation.name, Count())
        met, numbers = criterion.verdict({ROWS: count.rows, COUNTED: count.counted, UNEXPECTED: count.unexpected})
        if met or expectation.on_fail == "quarantine":
            continue
        unmet[expectation.name] = count.unexpected
        if expectation.on_fail == "stop":
            numbers_text = f"{numbers['unexpected_count']:,} of {count.rows:,} rows, {EXAMPLES.removeprefix('unexpected, ')} {', '.join(count.examples)}"
            stopping.append(f"{expectation.name}, {expectation.describe()}: {numbers_text}")
    if stopping:
        where = f"landing of '{source.name}'"
        fix = (
            f'Nothing of this commit is written. Mend the rows; or write on_fail="quarantine" to set such rows aside, "warn" to count them; '
            f"then: floodmark land {source.name}"
        )
        raise ExecutionError(where, "rows that meet its expectations", "; ".join(stopping), fix, code="EXECUTION-090")
    return unmet
