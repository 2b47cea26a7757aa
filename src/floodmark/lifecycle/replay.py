"""A replay of the last stretch of production through changed code, as data, and as a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.core.time import describe
from floodmark.lifecycle.comparison import Comparison
from floodmark.lifecycle.plan import Plan

_WIDEST = 60
"""Characters of a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The outcome of one operator's new code on production's input.

    Args:
        plan: the changes of the operator.
        savepoint: of production, from which the replay started; ``""`` if nothing was replayed.
        since: progress of production in that savepoint, ms UTC; None likewise.
        until: progress of the replay at its end, ms UTC; None likewise.
        found: output -> its comparison with production's, or why the two cannot be compared; without outputs that have no window closed in both.
        refused: why the operator was not replayed; ``""`` if it was replayed or has not changed.
        seconds: duration of the replay.
    """

    plan: Plan
    savepoint: str = ""
    since: int | None = None
    until: int | None = None
    found: Mapping[str, Comparison | str]
    refused: str = ""
    seconds: float = 0.0

    def passes(self, match: float) -> bool:
        """Whether the change is acceptable: enough rows of each output are the same, and all columns of production were compared.

        Args:
            match: least share of rows, 0 to 1.
        """
        if self.refused:
            return False
        if not self.plan.changes or self.plan.deployed is None:
            return True
        return bool(self.found) and all(
            not isinstance(one, str) and one.counts.match >= match and not one.not_compared
            for one in self.found.values()
        )

    def outcome(self) -> str:
        """The outcome in words."""
        if self.plan.deployed is None:
            return "new: production has no stream of it"
        if not self.plan.changes:
            return "nothing has changed"
        if self.refused:
            return f"not replayed: {self.refused}"
        compared = [one for one in self.found.values() if not isinstance(one, str)]
        rows = sum(one.counts.rows for one in compared)
        same = sum(one.counts.equal + one.counts.within for one in compared)
        if not compared:
            return next(iter(self.found.values()), "nothing has closed in both")  # type: ignore[return-value]  # all are texts
        return f"{same:,} of {rows:,} rows are the same"


def markdown(against: str, replays: Sequence[Replay], match: float) -> str:
    """The comment on a pull request.

    Args:
        against: name of production, as the user spelled it.
        replays: of all operators.
        match: least share of rows that must be the same, 0 to 1.
    """
    return "\n".join([f"## Replay against {against}", "", *_summary(replays, match), *_parts(replays)]) + "\n"


def _summary(replays: Sequence[Replay], match: float) -> Iterator[str]:
    yield "| | operator | state | replay |"
    yield "|---|---|---|---|"
    for replay in replays:
        verdict = replay.plan.verdict if replay.plan.deployed is not None else "new"
        sign = "✅" if replay.passes(match) else "❌"
        yield f"| {sign} | {_cell(replay.plan.defined)} | {verdict} | {_cell(replay.outcome(), longest=400)} |"


def _parts(replays: Sequence[Replay]) -> Iterator[str]:
    for replay in replays:
        if replay.plan.deployed is None or not replay.plan.changes:
            continue
        yield from (
            "",
            f"### {replay.plan.operator}",
            "",
            f"`{replay.plan.deployed}` → `{replay.plan.defined}`: {replay.plan.verdict}",
            "",
        )
        for change in replay.plan.changes:
            words = " → ".join(text for text in (change.before, change.after) if text)
            yield f"- **{_cell(change.where)}**: {_cell(words, longest=400)}: {change.verdict}"
        if replay.since is not None and replay.until is not None:
            yield ""
            yield (
                f"From savepoint `{replay.savepoint}`, {describe(replay.since)} to {describe(replay.until)}, on the embedded engine, "
                f"in {replay.seconds:.0f} s."
            )
        for table, comparison in replay.found.items():
            yield ""
            if isinstance(comparison, str):
                yield f"`{table}`: {_cell(comparison, longest=400)}"
            else:
                yield from _comparison(table, comparison)


def _comparison(table: str, comparison: Comparison) -> Iterator[str]:
    counts = comparison.counts
    yield f"| rows of `{table}` | production | this change |"
    yield "|---|---:|---:|"
    yield f"| the same | {counts.equal:,} | {counts.equal:,} |"
    if counts.within:
        yield f"| within tolerance | {counts.within:,} | {counts.within:,} |"
    yield f"| different | {counts.different:,} | {counts.different:,} |"
    yield f"| only here | {counts.only_left:,} | {counts.only_right:,} |"
    for other in comparison.schema:
        yield ""
        yield f"Column `{other.name}`: {other.left or 'not there'} in production, {other.right or 'not there'} here."
    changed = [column for column in comparison.changed if column.different or column.within]
    if changed:
        yield from (
            "",
            "| column | the same | different | mean in production | mean here |",
            "|---|---:|---:|---:|---:|",
        )
        for column in changed:
            means = ["" if side.mean is None else f"{side.mean:.6g}" for side in (column.left, column.right)]
            yield f"| `{column.name}` | {100 * column.share:.6g}% | {column.different:,} | {means[0]} | {means[1]} |"
    if comparison.samples:
        yield from ("", "<details><summary>Rows</summary>", "", "```diff")
        for sample in comparison.samples:
            for sign, row in (("-", sample.left), ("+", sample.right)):
                if row is not None:
                    yield f"{sign} " + ", ".join(f"{name} {_value(value)}" for name, value in row.items())
        yield from ("```", "", "</details>")


def _value(value: Any) -> str:
    return _short("null" if value is None else str(value)).replace("\n", " ").replace("```", "'''")


def _cell(text: str, longest: int = _WIDEST) -> str:
    """The text of a cell of a Markdown table: one line, no bars, no tags."""
    return _short(" ".join(text.split()), longest).replace("|", "\\|").replace("<", "&lt;")


def _short(text: str, longest: int = _WIDEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
