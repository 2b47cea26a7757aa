"""A comparison as one self-contained HTML page: the verdict first, then the differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

from floodmark.core.time import describe
from floodmark.lifecycle.comparison import ColumnDifference, Comparison
from floodmark.observe.charts import bars, lines
from floodmark.observe.comparison.profiles import SHOWN

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1100px;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem;font-size:14px}td,th{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:left}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}.same{color:#2a6b2d}.other{color:#b3401a}"
    "tr.left td{background:#fbeeea}tr.right td{background:#eaf4ea}"
    "tr.why td{color:#666;font-size:13px;padding-bottom:.8rem}code{background:#f3f3f3;padding:.1rem .3rem}svg{max-width:760px;display:block}"
)


def page(comparison: Comparison) -> str:
    """HTML of a comparison."""
    kind, verdict = (
        ("same", "The same")
        if comparison.same
        else ("other", f"{100 * comparison.counts.match:.4g}% of the rows are the same")
    )
    title = f"{comparison.left} with {comparison.right}"
    parts = [f"<h1>{escape(title)}</h1>", f'<h2 class="{kind}">{verdict}</h2>', *body(comparison)]
    return document(title, parts)


def document(title: str, parts: Iterable[str]) -> str:
    """A self-contained HTML page of a title and parts."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en">{head}\n{"".join(parts)}\n</html>\n'


def body(
    comparison: Comparison, sides: tuple[str, str] = ("left", "right"), noise: Comparison | None = None
) -> Iterator[str]:
    """The HTML below the verdict, part by part.

    Args:
        comparison: the comparison.
        sides: names of the left and the right side.
        noise: comparison of two sides of the same code, shown as a reference; None if there is none.
    """
    counts = comparison.counts
    rows = "all rows" if comparison.upto is None else f"rows before {describe(comparison.upto)}"
    paired = (
        f"paired by {', '.join(comparison.grain)}" if comparison.grain else "compared as a whole, as no key is known"
    )
    yield f"<p>{escape(rows)}, {escape(paired)}.</p>"
    yield table(
        ("rows", *sides),
        [
            ("the same", counts.equal, counts.equal),
            ("within tolerance", counts.within, counts.within),
            ("different", counts.different, counts.different),
            ("only here", counts.only_left, counts.only_right),
            ("all", counts.left, counts.right),
        ],
    )
    if comparison.schema:
        differences = [(one.name, one.left or "not there", one.right or "not there") for one in comparison.schema]
        yield "<h3>Schema</h3>" + table(("column", *sides), differences)
    if changed := comparison.changed:
        yield "<h3>Columns</h3>"
        floor = {} if noise is None else {column.name: column.different for column in noise.columns}
        yield bars(
            {
                name: float(pairs)
                for column in changed
                for name, pairs in (
                    (column.name, column.different),
                    *([(f"{column.name}, noise", floor[column.name])] if column.name in floor else []),
                )
            },
            "pairs differ",
        )
        for column in changed:
            yield _column(column, sides)
    if drifts := [column for column in comparison.columns if column.drift is not None]:
        yield f"<h3>Drift</h3>{_drifts(drifts)}"
    if comparison.windows:
        yield "<h3>Windows</h3>"
        yield bars(
            {describe(w.end): float(w.different + w.only_left + w.only_right) for w in comparison.windows[::-1]},
            "rows differ",
        )
        windows = [
            (describe(w.start), describe(w.end), w.different, w.only_left, w.only_right) for w in comparison.windows
        ]
        yield table(("from", "to", "different", f"only {sides[0]}", f"only {sides[1]}"), windows)
        yield f"<p>And {comparison.more_windows:,} more.</p>" if comparison.more_windows else ""
    yield f"<h3>Rows to look at</h3>{_samples(comparison, sides)}" if comparison.samples else ""


def _column(column: ColumnDifference, names: tuple[str, str]) -> str:
    sides = (column.left, column.right)
    rows: list[tuple[Any, ...]] = [("nulls", *(s.nulls for s in sides))]
    shown = {"distinct": "different values, about", "least": "least", "greatest": "greatest"}
    present = [name for name in shown if any(getattr(s, name) is not None for s in sides)]
    rows += [(shown[name], *(getattr(s, name) for s in sides)) for name in present]
    if column.left.mean is not None:
        rows += [("mean", *(s.mean for s in sides)), ("standard deviation", *(s.deviation for s in sides))]
        rows += [(f"quantile {share:g}", *((s.quantiles or {}).get(share) for s in sides)) for share in SHOWN]
    summary = f"{column.different:,} pairs differ, {column.within:,} within tolerance"
    if column.distance is not None:
        summary += f"; distributions {column.distance:.3f} apart (0 the same, 1 nothing in common)"
    top = table((*names, "pairs"), column.top) if column.top else ""
    head = f"<h4>{escape(column.name)} <small>{escape(column.type)}</small></h4><p>{summary}.</p>{top}"
    return head + _quantiles(column, names) + table(("", *names), rows)


def _quantiles(column: ColumnDifference, names: tuple[str, str]) -> str:
    """SVG of a numeric column's quantiles on both sides; empty for other columns."""
    sides = (column.left.quantiles, column.right.quantiles)
    if column.left.mean is None or column.right.mean is None or not all(sides):
        return ""
    series = {name: [(held or {}).get(share) for share in SHOWN] for name, held in zip(names, sides, strict=True)}
    return lines(series, [f"{share:g}" for share in SHOWN], "by quantile")


def _drifts(columns: Sequence[ColumnDifference]) -> str:
    """A table of the mean differences per window, columns that are apart first, and an explanation."""
    drifts = [(one.name, one.drift) for one in columns if one.drift is not None]
    drifts.sort(key=lambda pair: not pair[1].apart)
    level = max(drift.level for _, drift in drifts)
    rows = [
        (name, drift.windows, drift.mean, drift.low, drift.high, "apart" if drift.apart else "may be chance")
        for name, drift in drifts
    ]
    meaning = (
        "Right minus left of the mean of each window, each window counting the same. The interval holds at every look, so an experiment may be stopped "
        f"because of it: equal versions are called apart in a column with a probability of at most {level:.3g}, over all looks. It says nothing of single "
        "rows, nor of windows unlike these, nor whether a difference matters."
    )
    return table(("column", "windows", "mean difference", "from", "to", ""), rows) + f"<p>{meaning}</p>"


def _samples(comparison: Comparison, sides: tuple[str, str]) -> str:
    names = list(
        dict.fromkeys(
            name for sample in comparison.samples for row in (sample.left, sample.right) if row for name in row
        )
    )
    rows = [f"<tr><th></th>{''.join(f'<th>{escape(name)}</th>' for name in names)}</tr>"]
    for sample in comparison.samples:
        for kind, side, row in (("left", sides[0], sample.left), ("right", sides[1], sample.right)):
            if row is not None:
                cells = "".join(_cell(row.get(name)) for name in names)
                rows.append(f'<tr class="{kind}"><td>{escape(side)}</td>{cells}</tr>')
        if sample.why:
            rows.append(f'<tr class="why"><td></td><td colspan="{len(names)}">{escape(sample.why)}</td></tr>')
    return f"<table>{''.join(rows)}</table>"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """An HTML table with numbers aligned to the right."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"<td>{escape('null' if value is None else str(value))}</td>"
    return f'<td class="n">{value:,}</td>' if isinstance(value, int) else f'<td class="n">{value:,.6g}</td>'
