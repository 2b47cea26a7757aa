"""Small pictures as inline SVG: lines, bars and graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT = 720, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 96, 12, 28
_COLOURS = ("#1f5f99", "#c2571a", "#3c7d3f", "#7a4a9e")
_TICKS = 4
_LABELS = 8
_BOX_WIDTH, _BOX_HEIGHT, _APART, _BELOW = 224, 46, 56, 16
_LETTERS = 28
"""Most letters in a box: as wide as it in a wide font, such as DejaVu Sans."""
_KINDS = {"input": "#e4eef7", "output": "#e6f2e6", "stateful": "#f7ecdf"}
"""Kind of a node -> colour of its box."""
_HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0,0 L8,4 L0,8 z" fill="#888"/></marker></defs>'
)
"""Head of an arrow."""


def lines(series: Mapping[str, Sequence[float | None]], labels: Sequence[str], unit: str) -> str:
    """SVG of several lines over the same labels. A line connects its values and skips None.

    Args:
        series: name -> one value per label.
        labels: along the x axis. At most about eight are shown.
        unit: unit of the values.
    """
    values = [value for points in series.values() for value in points if value is not None]
    low, high = min(0.0, *values), max(1.0, *values)
    parts = [_axis(low, high, unit)]
    step = max(1, len(labels) // _LABELS)
    parts += [_text(_x(at, len(labels)), _HEIGHT - 8, labels[at], "middle") for at in range(0, len(labels), step)]
    for n, (name, points) in enumerate(series.items()):
        colour = _COLOURS[n % len(_COLOURS)]
        known = [(at, value) for at, value in enumerate(points) if value is not None]
        path = " ".join(f"{_x(at, len(labels)):.1f},{_y(value, low, high):.1f}" for at, value in known)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        parts.append(_text(_WIDTH - _RIGHT + 8, _TOP + 14 + 18 * n, name, "start", colour))
    return _picture(parts, _HEIGHT)


def bars(values: Mapping[str, float], unit: str) -> str:
    """SVG of horizontal bars, one per name, each with its number and ``unit``."""
    height, left = 24, 250
    most = max(1.0, *values.values())
    parts = []
    for n, (name, value) in enumerate(values.items()):
        top, width = n * height + 4, value / most * (_WIDTH - left - 130)
        parts.append(_text(left - 8, top + 13, name, "end"))
        parts.append(f'<rect x="{left}" y="{top}" width="{width:.1f}" height="{height - 8}" fill="{_COLOURS[0]}"/>')
        parts.append(_text(left + width + 6, top + 13, f"{value:,.0f} {unit}", "start"))
    return _picture(parts, len(values) * height + 8)


def strips(
    rows: Mapping[str, Sequence[tuple[int, int, str]]], colours: Mapping[str, str], labels: Mapping[int, str]
) -> str:
    """SVG of stretches along one axis: a strip for each name, in which each stretch has the colour of its kind.

    Args:
        rows: name -> (start, end, kind) of each stretch, in order.
        colours: kind -> colour, in the order of the legend.
        labels: place on the axis -> text of a tick.
    """
    ends = [place for stretches in rows.values() for start, end, _ in stretches for place in (start, end)]
    low, high, left, height = min(ends, default=0), max(ends, default=1), 250, 24
    scale = (_WIDTH - left - 16) / max(1, high - low)
    parts = [_text(left + (place - low) * scale, _TOP + 4, text, "start") for place, text in labels.items()]
    for n, (name, stretches) in enumerate(rows.items()):
        top = _TOP + 14 + n * height
        parts.append(_text(left - 8, top + 13, name, "end"))
        for start, end, kind in stretches:
            box = f'x="{left + (start - low) * scale:.2f}" y="{top}" width="{max(0.5, (end - start) * scale):.2f}" height="{height - 8}"'
            parts.append(f'<rect {box} fill="{colours[kind]}"><title>{escape(kind)}</title></rect>')
    top, at = _TOP + 14 + len(rows) * height, left
    for kind, colour in colours.items():
        parts.append(f'<rect x="{at}" y="{top + 4}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(at + 14, top + 13, kind, "start"))
        at += 30 + 7 * len(kind)
    return _picture(parts, top + height)


def curve(
    points: Sequence[tuple[float, float]],
    *,
    across: Mapping[str, float],
    up: Mapping[str, float],
    marks: Mapping[str, float],
    title: str,
) -> str:
    """SVG of one step line over labelled axes. The caller scales the coordinates, for example logarithmically.

    Args:
        points: (x, y), sorted by x.
        across: label -> x of a tick, in order.
        up: label -> y of a tick, in order.
        marks: name -> x of a dashed vertical line.
        title: text above the picture.
    """
    widest = max([*across.values(), *marks.values(), *(x for x, _ in points)], default=1.0) or 1.0
    low, high = min(up.values()), max(up.values())
    parts = [_text(_LEFT, _TOP + 2, title, "start")]
    for label, value in up.items():
        y = _curve_y(value, low, high)
        parts.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(_LEFT - 6, y + 4, label, "end"))
    parts += [_text(_curve_x(x, widest), _HEIGHT - 8, label, "middle") for label, x in across.items()]
    steps = [(x, y) for n, (x, _) in enumerate(points) for y in (points[max(n - 1, 0)][1], points[n][1])]
    path = " ".join(f"{_curve_x(x, widest):.1f},{_curve_y(y, low, high):.1f}" for x, y in steps)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{_COLOURS[0]}" stroke-width="1.6"/>')
    for n, (name, x) in enumerate(marks.items(), 1):
        at, colour = _curve_x(x, widest), _COLOURS[n % len(_COLOURS)]
        line = f'<line x1="{at:.1f}" y1="{_TOP + 10}" x2="{at:.1f}" y2="{_HEIGHT - _BOTTOM}"'
        parts.append(f'{line} stroke="{colour}" stroke-dasharray="4 3"/>')
        side = "start" if x == max(marks.values()) else "end"  # away from the other lines
        parts.append(_text(at + (5 if side == "start" else -5), _TOP + 4 + 16 * n, name, side, colour))
    return _picture(parts, _HEIGHT)


def _curve_x(value: float, widest: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / widest


def _curve_y(value: float, low: float, high: float) -> float:
    top = _TOP + 10  # below the title
    return top + (_HEIGHT - top - _BOTTOM) * (high - value) / ((high - low) or 1.0)


def _axis(low: float, high: float, unit: str) -> str:
    parts = []
    for n in range(_TICKS + 1):
        value = low + (high - low) * n / _TICKS
        y = _y(value, low, high)
        parts.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        whole = high - low >= 2 * _TICKS
        parts.append(_text(_LEFT - 6, y + 4, f"{value:,.0f}" if whole else f"{value:.3g}", "end"))
    return "".join(parts) + _text(_WIDTH - _RIGHT + 8, _HEIGHT - _BOTTOM, unit, "start")


def _x(at: int, count: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * at / max(1, count - 1)


def _y(value: float, low: float, high: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - (value - low) / (high - low))


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#444") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _picture(parts: Sequence[str], height: int) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" viewBox="0 0 {_WIDTH} {height}" role="img" font-size="12">{"".join(parts)}</svg>'


def graph(nodes: Sequence[Mapping[str, str]], edges: Sequence[Sequence[str]], notes: Mapping[str, str]) -> str:
    """SVG of a graph without cycles, left to right: a box per node, an arrow per edge.

    Args:
        nodes: each with ``id``, ``label`` and ``kind``, which chooses the colour.
        edges: pairs of ids.
        notes: id -> text in the box below the label.
    """
    columns: dict[str, int] = {}
    for node in nodes:  # a node's parents come before it
        columns[node["id"]] = max((columns[start] + 1 for start, end in edges if end == node["id"]), default=0)
    places: dict[str, tuple[float, float]] = {}
    rows: dict[int, int] = {}
    for node in nodes:
        column = columns[node["id"]]
        places[node["id"]] = column * (_BOX_WIDTH + _APART) + 2.0, rows.get(column, 0) * (_BOX_HEIGHT + _BELOW) + 2.0
        rows[column] = rows.get(column, 0) + 1
    parts = [_HEAD]
    for start, end in edges:
        (x, y), (to_x, to_y) = places[start], places[end]
        x, y, to_y = x + _BOX_WIDTH, y + _BOX_HEIGHT / 2, to_y + _BOX_HEIGHT / 2
        bend = (x + to_x) / 2
        path = f"M{x:.0f},{y:.0f} C{bend:.0f},{y:.0f} {bend:.0f},{to_y:.0f} {to_x:.0f},{to_y:.0f}"
        parts.append(f'<path d="{path}" fill="none" stroke="#888" marker-end="url(#head)"/>')
    for node in nodes:
        x, y = places[node["id"]]
        fill = _KINDS.get(node["kind"], "#f4f4f4")
        box = f'x="{x:.0f}" y="{y:.0f}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="5"'
        parts.append(f'<g><title>{escape(node["label"])}</title><rect {box} fill="{fill}" stroke="#999"/>')
        parts.append(_text(x + 8, y + 19, _shortened(node["label"]), "start", "#222"))
        parts.append(_text(x + 8, y + 36, notes.get(node["id"], ""), "start", "#666") + "</g>")
    width = max(columns.values(), default=0) * (_BOX_WIDTH + _APART) + _BOX_WIDTH + 4
    height = max(rows.values(), default=1) * (_BOX_HEIGHT + _BELOW)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" font-size="12">{"".join(parts)}</svg>'
    )


def _shortened(label: str) -> str:
    return label if len(label) <= _LETTERS else f"{label[: _LETTERS - 1]}…"
