"""The pictures of the examples, from their definitions: what lands, what reads it, and what reads that.

python tests/docs/example_pictures.py     # draws examples/NAME/picture.svg of each
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from pathlib import Path
from types import ModuleType

from floodmark import Workspace

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WIDTH, LEFT, LANE, LINE, GAP = 440, 70, 11, 18, 14
"""Pixels; the width is that of the first picture of README.md, so that a telephone shows the text."""
LETTERS = 48
"""Of a line of text."""
LOOKS = "abcde"
"""Colours of lanes, in turn."""
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .name { font: 600 14px ui-monospace, Menlo, Consolas, monospace } .note { fill: #59636e }
.card { fill: #ffffff; stroke: #d1d9e0 } .box { fill: #f6f8fa; stroke: #d1d9e0 } .lane { fill: none; stroke-width: 2 }
.a { stroke: #0550ae } .b { stroke: #bc4c00 } .c { stroke: #116329 } .d { stroke: #8250df } .e { stroke: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .note { fill: #9198a1 } .card { fill: #0d1117; stroke: #3d444d } .box { fill: #151b23; stroke: #3d444d }
  .a { stroke: #79c0ff } .b { stroke: #ffa657 } .c { stroke: #7ee787 } .d { stroke: #d2a8ff } .e { stroke: #9198a1 }
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What is drawn as a box.

    Args:
        name: as the workspace has it.
        kind: what stands at its right.
        about: a sentence.
        reads: names of boxes above it.
    """

    name: str
    kind: str
    about: str
    reads: tuple[str, ...] = ()


def nodes(workspace: Workspace) -> list[Node]:
    """The sources, operators and deliveries of a workspace, each below what it reads."""
    found = [Node(name=one.name, kind="log", about=_sentence(one.contract.__doc__ or "")) for one in workspace.sources]
    writers = {output.table: operator.name for operator in workspace.operators for output in operator.outputs}
    for operator in workspace.operators:
        reads = tuple(writers.get(given.table, given.table) for given in operator.inputs)
        found.append(Node(name=operator.name, kind="operator", about=_sentence(operator.description), reads=reads))
    for route in workspace.deliveries:
        kind = type(route.delivery).__name__
        found.append(
            Node(name=route.name, kind="delivery", about=f"Its rows, by {kind}.", reads=(route.operator.name,))
        )
    return found


def _sentence(text: str) -> str:
    first = re.split(r"(?<=[.:;]) ", " ".join(text.split()))[0]
    return re.sub(r"[;:]$", ".", first.replace("`", ""))


def picture(found: Sequence[Node]) -> str:
    """The picture as SVG: boxes one below the other, and a lane at the left from each to those that read it."""
    texts = [textwrap.wrap(node.about, LETTERS) for node in found]
    tops, bottom = list[int](), GAP
    for text in texts:
        tops.append(bottom)
        bottom += 32 + LINE * len(text) + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom}" width="{WIDTH}" height="{bottom}" role="img">'
    card = f'<rect class="card" x="1" y="1" width="{WIDTH - 2}" height="{bottom - 2}" rx="10"/>'
    parts = [part for node, text, top in zip(found, texts, tops, strict=True) for part in _box(node, text, top)]
    return f"{head}<style>{STYLE}</style>{card}{''.join(parts)}{''.join(_lanes(found, tops))}</svg>\n"


def _box(node: Node, text: Sequence[str], top: int) -> Iterator[str]:
    right = WIDTH - GAP
    height = 32 + LINE * len(text)
    yield f'<rect class="box" x="{LEFT}" y="{top}" width="{right - LEFT}" height="{height}" rx="6"/>'
    yield f'<text class="name" x="{LEFT + 12}" y="{top + 21}">{escape(node.name)}</text>'
    yield f'<text class="note" x="{right - 12}" y="{top + 21}" text-anchor="end">{node.kind}</text>'
    for number, line in enumerate(text):
        yield f'<text class="note" x="{LEFT + 12}" y="{top + 40 + number * LINE}">{escape(line)}</text>'


def _lanes(found: Sequence[Node], tops: Sequence[int]) -> Iterator[str]:
    """From each box that is read: down its lane, and into each box that reads it."""
    rows, ends = {node.name: row for row, node in enumerate(found)}, list[int]()
    for row, node in enumerate(found):
        readers = [rows[other.name] for other in found if node.name in other.reads]
        if not readers:
            continue
        lane = next((number for number, end in enumerate(ends) if end < row), len(ends))
        ends[lane : lane + 1] = [max(readers)]
        x, look, enter = LEFT - 14 - LANE * lane, LOOKS[lane % len(LOOKS)], 10 + 6 * lane
        yield f'<path class="lane {look}" d="M{LEFT} {tops[row] + 24 + lane}H{x}V{tops[max(readers)] + enter}"/>'
        for reader in readers:
            y = tops[reader] + enter
            yield f'<path class="lane {look}" d="M{x} {y}H{LEFT - 2}m-5 -4l5 4l-5 4"/>'


def names() -> list[str]:
    """The examples."""
    return sorted(path.parent.name for path in EXAMPLES.glob("*/workspace.py"))


def drawn(name: str) -> str:
    """The picture of an example; its modules, which are called as those of the others, are gone afterwards."""
    folder = EXAMPLES / name
    sys.path.insert(0, str(folder))
    try:
        return picture(nodes(import_module("workspace").workspace()))
    finally:
        sys.path.remove(str(folder))
        for module in [key for key, one in sys.modules.items() if _is_below(one, folder)]:
            del sys.modules[module]


def _is_below(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).parent == folder


if __name__ == "__main__":
    for name in names():
        (EXAMPLES / name / "picture.svg").write_text(drawn(name), "utf-8")
