"""The report of an experiment as a self-contained HTML page and as markdown: verdict, differences, operations, next steps."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from floodmark.core.time import NEVER, describe
from floodmark.lifecycle.comparison import Comparison
from floodmark.lifecycle.experiment import Arm
from floodmark.lifecycle.report import Report, operational
from floodmark.observe.comparison.page import body, document, table

_NOTHING = "Nothing has closed in both arms since they began, so nothing was compared."


def page(report: Report) -> str:
    """HTML of a report."""
    return document(f"Experiment {report.experiment.name}", _parts(report))


def _parts(report: Report) -> Iterator[str]:
    made = report.experiment
    yield f"<h1>Experiment {escape(made.name)} of {escape(made.operator)}</h1>"
    for arm in report.others:
        kind = "same" if report.passes(arm) else "other"
        yield f'<h2 class="{kind}">{escape(f"{made.arms[0].name} and {arm.name}: {report.verdict(arm)}")}</h2>'
    yield f"<p>{escape(_about(report))}</p>"
    yield "<h2>To go on</h2>" + "".join(f"<p><code>{escape(one)}</code></p>" for one in report.next_steps())
    if report.guardrails:
        became = "has become" if made.promoted == made.candidate else "becomes"
        yield f"<h2>The rule by which {escape(made.candidate)} {became} the stream</h2>"
        yield table(
            ("guardrail", "wants", "sees", ""),
            [(one.name, one.wants, one.sees, one.verdict) for one in report.guardrails],
        )
    yield "<h2>How the arms run</h2>"
    yield table(
        ("", *(arm.name for arm in made.arms)), [(what, *values) for what, values in operational(report.operations)]
    )
    for arm in report.others:
        yield from _arm(report, arm)


def _about(report: Report) -> str:
    made = report.experiment
    since = "all there is" if made.since <= NEVER else f"what lies behind {describe(made.since)}, where the arms parted"
    ended = "" if made.ended_at is None else f" to {describe(made.ended_at)}"
    keys = "" if made.sample is None else f" The arms run over {made.sample}."
    return (
        f"{made.state}, {describe(made.began_at)}{ended}, from savepoint {made.savepoint}. Compared is {since}, as far as both arms are.{keys} "
        f"An arm passes with {100 * report.match:g}% of the rows the same."
    )


def _arm(report: Report, arm: Arm) -> Iterator[str]:
    made, outputs = report.experiment, report.comparisons[arm.name]
    sides = (made.arms[0].name, arm.name)
    yield f"<h2>{escape(sides[0])} and {escape(sides[1])}</h2>"
    if made.twin(arm):
        yield "<p>Both run the same code: in what they differ is noise, of functions that are not pure and of the order in which floats are added.</p>"
    elif arm.differs:
        yield f"<p>In what the code of {escape(arm.name)} is another than that of the savepoint:</p>"
        yield f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in arm.differs)}</ul>"
    if not outputs:
        yield f"<p>{_NOTHING}</p>"
    for name, comparison in outputs.items():
        yield f"<h3>{escape(name)}</h3>"
        if isinstance(comparison, str):
            yield f"<p>Cannot be compared: {escape(comparison)}</p>"
        else:
            noise = None if made.twin(arm) else report.noise(name)
            yield from body(comparison, sides, noise)


def markdown(report: Report) -> str:
    """A short report in markdown: verdicts, counts, operations, next steps."""
    made = report.experiment
    lines = [f"- **{made.arms[0].name} and {arm.name}**: {report.verdict(arm)}" for arm in report.others]
    lines += ["", _about(report), "", *_markdown_counts(report), ""]
    lines += _markdown_table(
        ("", *(arm.name for arm in made.arms)), [(what, *values) for what, values in operational(report.operations)]
    )
    return "\n".join([*lines, "", *(f"- `{one}`" for one in report.next_steps())])


def _markdown_counts(report: Report) -> list[str]:
    rows = []
    for arm in report.others:
        for name, comparison in report.comparisons[arm.name].items():
            if isinstance(comparison, Comparison):
                counts = comparison.counts
                numbers = (counts.equal, counts.within, counts.different, counts.only_left, counts.only_right)
                rows.append((arm.name, name, *(f"{number:,}" for number in numbers)))
    first = report.experiment.arms[0].name
    columns = ("arm", "output", "the same", "within tolerance", "different", f"only {first}", "only the arm")
    return _markdown_table(columns, rows) if rows else [_NOTHING]


def _markdown_table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(one)} |" for one in (columns, ("---",) * len(columns), *rows)]
