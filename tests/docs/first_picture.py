"""The first picture of README.md, from a run of the program that README.md shows: orders land, one of them late; both modes give the same rows.

python tests/docs/first_picture.py > docs/images/one_definition.svg
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import console_pages

from floodmark import Operator
from floodmark.core.time import NEVER, span
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.spec.values.schema import MARKER, RETRACTION, ROW
from floodmark.testing import Run
from floodmark.testing.log import Log
from floodmark.testing.rows import table

ROOT = Path(__file__).resolve().parents[2]
DELAY = "10 minutes"
WIDTH, LINE = 440, 22
"""Pixels: narrow enough for a telephone, where the picture is shown at about nine tenths of its size."""
STYLE = """
text { font: 14px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328 }
.label { font: 600 14px system-ui, sans-serif } .note { font: 13px system-ui, sans-serif; fill: #59636e } .head { fill: #59636e }
.card { fill: #ffffff; stroke: #d1d9e0 } .box { fill: #f6f8fa; stroke: #d1d9e0 } .arrow { stroke: #59636e; stroke-width: 1.5; fill: none }
.late { fill: #9a3412 } .gone { fill: #59636e; text-decoration: line-through } .same { fill: #116329 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .note, .head { fill: #9198a1 } .card { fill: #0d1117; stroke: #3d444d } .box { fill: #151b23; stroke: #3d444d }
  .arrow { stroke: #9198a1 } .late { fill: #ffa657 } .gone { fill: #9198a1 } .same { fill: #7ee787 }
}
"""


@dataclass(frozen=True, slots=True)
class Landed:
    """An order in the log: its values, the watermark it is stamped with, and the rows that the stream writes when it comes."""

    values: dict[str, Any]
    watermark: int
    changes: Sequence[tuple[int, str]]

    @property
    def is_late(self) -> bool:
        """True if the watermark had reached the order's time."""
        return self.values["at"].replace(tzinfo=UTC).timestamp() * 1000 <= self.watermark


def program() -> tuple[Operator, list[dict[str, Any]]]:
    """The operator and the orders of the first program of README.md."""
    block = next(block for block in console_pages.blocks(ROOT / "README.md") if block.argument == "sales.py")
    names: dict[str, Any] = {"__name__": "sales"}
    exec(compile(block.body.split("for mode in")[0], "sales.py", "exec", dont_inherit=True), names)  # noqa: S102 - the page's
    return names["sales"], [dict(row) for row in table(names["orders"])]


def landed(operator: Operator, orders: Sequence[dict[str, Any]]) -> tuple[list[Landed], list[tuple[int, str]]]:
    """Each order with its stamp and what the stream writes behind it, and what the end of input adds. A landing commit holds one order."""
    log, run, steps = Log(operator.inputs[0].schema), MemoryRun(operator), []
    for order in orders:
        log.rows([order], "at", span(DELAY))
        log.move(log.watermark)
        row = len(log.entries) - 2
        written = run.batch({"orders": log.table(row)})
        steps.append(Landed(order, log.entries[row]["_watermark"], _changes(written[""].to_pylist())))
    log.end()
    return steps, _changes(run.batch({"orders": log.table(len(log.entries) - 1)})[""].to_pylist())


def _changes(rows: Sequence[dict[str, Any]]) -> list[tuple[int, str]]:
    return [(row["_kind"], told(row)) for row in rows if row["_kind"] != MARKER]


def told(row: dict[str, Any]) -> str:
    """A result as text."""
    return f"{row['country']} {row['window_start']:%H:%M} {row['cents']:>4}"


def clock(moment: int) -> str:
    """A watermark as text, or a dash before the first."""
    return "  -  " if moment == NEVER else f"{datetime.fromtimestamp(moment / 1000, UTC):%H:%M}"


def drawn() -> Iterator[str]:
    """The parts of the picture, from the top."""
    operator, orders = program()
    steps, end = landed(operator, orders)
    bounded = [told(row) for row in Run("memory", "bounded")(operator, {"orders": orders}, delay=DELAY)[""]]
    unbounded = [told(row) for row in Run("memory", "unbounded")(operator, {"orders": orders}, delay=DELAY)[""]]
    yield _text(20, 34, "Orders land once, in a Delta table, stamped", "label")
    yield _text(20, 56, f"watermark: the newest order's time less {DELAY}", "note")
    yield _text(20, 84, "time   cents   watermark", "head")
    top = 84
    for step in steps:
        top += LINE
        line = f"{step.values['at']:%H:%M} {step.values['cents']:>6}     {clock(step.watermark)}"
        yield _text(20, top, line, "late" if step.is_late else "")
        if step.is_late:
            yield _text(225, top, "late: decided here", "late")
    top += 28
    yield f'<path class="arrow" d="M220 {top - 12}v14"/>'
    yield f'<rect class="box" x="20" y="{top + 4}" width="400" height="34" rx="6"/>'
    yield _text(32, top + 26, "one operator, on Spark or without Java", "label")
    top += 58
    yield f'<path class="arrow" d="M110 {top - 18}v14M320 {top - 18}v14"/>'
    yield _text(20, top + 14, "bounded", "label") + _text(230, top + 14, "unbounded", "label")
    yield _text(20, top + 34, "all at once", "note") + _text(230, top + 34, "order by order", "note")
    right = [change for step in steps for change in step.changes] + end
    for number, result in enumerate(bounded):
        yield _text(20, top + 60 + number * LINE, result, "same")
    taken_back = {text for kind, text in right if kind == RETRACTION}
    shown = [text for kind, text in right if kind == ROW]
    for number, text in enumerate(shown):
        yield _text(230, top + 60 + number * LINE, text, "gone" if text in taken_back else "same")
        if text in taken_back:
            yield _text(352, top + 60 + number * LINE, "revised", "note")
    assert bounded == unbounded == [text for text in shown if text not in taken_back]
    top += 60 + max(len(bounded), len(shown)) * LINE
    yield _text(20, top + 6, "The same rows, whichever way it runs.", "label")


def _text(x: int, y: int, text: str, kind: str = "") -> str:
    shown = text.replace(" ", "\u00a0")
    return f'<text x="{x}" y="{y}"{f" class={chr(34)}{kind}{chr(34)}" if kind else ""}>{shown}</text>'


def picture() -> str:
    """The picture as SVG."""
    parts = list(drawn())
    height = max(int(part.split('y="')[-1].split('"')[0]) for part in parts if "y=" in part) + 22
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">'
    title = "<title>Three orders land, the third one late; a bounded and an unbounded run of one operator end with the same rows.</title>"
    card = f'<rect class="card" x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="10"/>'
    return "\n".join([head, title, f"<style>{STYLE}</style>", card, *parts, "</svg>", ""])


if __name__ == "__main__":
    sys.stdout.write(picture())
