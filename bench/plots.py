"""The pictures of docs/benchmarks.md, drawn from what was measured (``bench/results``).

    python bench/plots.py [FOLDER]

They are written into ``docs/images``, or into FOLDER, which is made. A picture whose measurement is missing is left as it is.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from measurements import read

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 330, 64, 178, 40, 44
FILES = 10
"""A second, of the picture of delays."""
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .title { font-weight: 600 } .note { fill: #59636e } .grid { stroke: #d1d9e0 }
.a { stroke: #0550ae; fill: #0550ae } .b { stroke: #bc4c00; fill: #bc4c00 } .c { stroke: #116329; fill: #116329 } .d { stroke: #8250df; fill: #8250df }
.line { fill: none; stroke-width: 2 } .thin { stroke-dasharray: 5 3 } .dots { stroke-dasharray: 2 3 } text.a, text.b, text.c, text.d { stroke: none } rect { stroke: none }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .note { fill: #9198a1 } .grid { stroke: #3d444d }
  .a { stroke: #79c0ff; fill: #79c0ff } .b { stroke: #ffa657; fill: #ffa657 } .c { stroke: #7ee787; fill: #7ee787 } .d { stroke: #d2a8ff; fill: #d2a8ff } .line { fill: none }
}
"""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a picture.

    Args:
        name: at its end.
        points: (x, y), both above 0.
        look: classes of its colour and its dashes.
    """

    name: str
    points: Sequence[tuple[float, float]]
    look: str


def logarithmic(title: str, across: str, up: str, lines: Sequence[Line]) -> str:
    """Lines over two logarithmic axes; 1, 2 and 5 of each power of ten have a grid line."""
    xs, ys = ([point[axis] for line in lines for point in line.points] for axis in (0, 1))
    (left, right), (low, high) = ((math.log10(min(values)), math.log10(max(values))) for values in (xs, ys))
    right, high = max(right, left + 0.1), max(high, low + 0.1)

    def x(value: float) -> float:
        return LEFT + (math.log10(value) - left) / (right - left) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (high - math.log10(value)) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [_text(8, 18, title, "title"), _text(LEFT, HEIGHT - 6, across, "note"), _text(8, TOP - 6, up, "note")]
    for tick in _ticks(min(ys), max(ys)):
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(_text(LEFT - 6, y(tick) + 4, f"{tick:g}", "note", "end"))
    shown = -math.inf
    for tick in sorted(set(xs)):
        parts.append(f'<line class="grid" y1="{TOP}" y2="{HEIGHT - BOTTOM}" x1="{x(tick):.1f}" x2="{x(tick):.1f}"/>')
        if x(tick) - shown >= 62:
            shown = x(tick)
            parts.append(_text(x(tick), HEIGHT - BOTTOM + 18, f"{tick:,.0f}", "note", "middle"))
    labels = _apart([y(line.points[-1][1]) for line in lines])
    for line, label in zip(lines, labels, strict=True):
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line.points)
        parts.append(f'<polyline class="line {line.look}" points="{path}"/>')
        parts += [f'<circle class="{line.look}" cx="{x(a):.1f}" cy="{y(b):.1f}" r="2.5"/>' for a, b in line.points]
        parts.append(_text(WIDTH - RIGHT + 8, label + 4, line.name, line.look.split()[0]))
    return _picture(parts, HEIGHT)


def bars(title: str, values: Iterable[tuple[str, float, str, str]]) -> str:
    """Horizontal bars on a logarithmic scale: (name, value, text behind it, colour)."""
    rows = list(values)
    low = min(value for _, value, _, _ in rows) / 2
    scale = (WIDTH - 250 - 150) / math.log10(max(value for _, value, _, _ in rows) / low)
    parts = [_text(8, 18, title, "title")]
    for number, (name, value, text, look) in enumerate(rows):
        top, width = 32 + number * 24, math.log10(value / low) * scale
        parts.append(_text(242, top + 13, name, "", "end"))
        parts.append(f'<rect class="{look}" x="250" y="{top}" width="{width:.1f}" height="17" rx="2"/>')
        parts.append(_text(250 + width + 6, top + 13, text, "note"))
    return _picture(parts, 40 + len(rows) * 24)


def _ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**power for power in powers for step in (1, 2, 5) if low <= step * 10.0**power <= high]


def _apart(places: Sequence[float]) -> list[float]:
    """Heights of labels, none nearer than 15 to another."""
    found = list(places)
    order = sorted(range(len(found)), key=lambda n: found[n])
    for before, after in itertools.pairwise(order):
        found[after] = max(found[after], found[before] + 15)
    return found


def _text(x: float, y: float, text: str, look: str, anchor: str = "start") -> str:
    return f'<text class="{look}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _picture(parts: Sequence[str], height: int) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">'
    return f"{head}<style>{STYLE}</style>{''.join(parts)}</svg>\n"


# ---- the pictures


def latency() -> str | None:
    """From the event to its committed row, at rising rates."""
    lines, colours = list[Line](), {"embedded": "a", "spark": "b"}
    for engine, colour in colours.items():
        rows = sorted(
            (
                row
                for row in read("load")
                if row["engine"] == engine and not row["interval"] and row["files"] == FILES and row["kept up"]
            ),
            key=lambda row: row["rate"],
        )
        for name, dashes in (("p50", ""), ("p99", " thin"), ("p99.9", " dots")):
            if rows:
                lines.append(Line(f"{engine}, {name}", [(row["rate"], row[name]) for row in rows], colour + dashes))
    title = "From an event to its committed row, behind a landing"
    return logarithmic(title, "events per second", "seconds", lines) if lines else None


def growth() -> str | None:
    """Processor seconds against rows."""
    rows = [row for row in read("growth") if row["what"] == "rows"]
    looks = {"landing": "a", "stream": "b", "bounded": "c"}
    lines = [
        Line(f"{name}, power {rows[-1][f'{name} exponent']}", [(row["rows"], row[name]) for row in rows], look)
        for name, look in looks.items()
        if rows
    ]
    return logarithmic("Processor seconds, embedded engine", "rows", "seconds", lines) if lines else None


def checkpoints() -> str | None:
    """Processor seconds of the same rows against the micro-batches among which they are divided."""
    lines = []
    for engine, look in (("embedded", "a"), ("spark", "b")):
        rows = sorted(
            (row for row in read("growth") if row["what"] == "intervals" and row["engine"] == engine),
            key=lambda row: row["micro-batches"],
        )
        if rows:
            lines.append(Line(engine, [(row["micro-batches"], row["cpu"]) for row in rows], look))
    count = next((row["rows"] for row in read("growth") if row["what"] == "intervals"), 0)
    title = f"{count:,} events, as so many micro-batches, each a checkpoint"
    return logarithmic(title, "micro-batches", "processor seconds", lines) if lines else None


def contenders() -> str | None:
    """Processor seconds of whole processes."""
    rows = [row for row in read("contenders") if row["keys"] == 100 and "cpu_seconds" in row]
    told = [
        (
            row["system"] if "," not in row["system"] else f"floodmark, {row['system'].replace(',', '')}",
            row["cpu_seconds"],
            f"{row['cpu_seconds']:,.1f} s",
            "a" if "," in row["system"] else "d",
        )
        for row in sorted(rows, key=lambda row: row["cpu_seconds"])
    ]
    return (
        bars(
            f"Views in {rows[0]['rows']:,} events: processor seconds of whole processes, logarithmic",
            told,
        )
        if rows
        else None
    )


PICTURES = {"latency": latency, "growth": growth, "checkpoints": checkpoints, "contenders": contenders}


def main() -> None:
    folder = Path(sys.argv[1]) if sys.argv[1:] else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        picture = draw()
        if picture is None:
            print(f"{name}: nothing was measured; the picture is left as it is")
        else:
            (folder / f"{name}.svg").write_text(picture)


if __name__ == "__main__":
    main()
