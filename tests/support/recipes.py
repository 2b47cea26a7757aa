"""Pages of recipes: each section with commands starts from a copy of the folder that the page's first block has made.

python tests/support/recipes.py docs/cookbook.md     # write what the commands print now into the page
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from console_pages import Block, Reader, blocks

HEADING = re.compile(r"^##+ (.+)$", re.MULTILINE)


def sections(page: Path) -> dict[str, list[Block]]:
    """(page) -> heading -> the blocks below it that are run; those before the first heading are under ''."""
    text = page.read_text("utf-8")
    starts = [(0, ""), *((heading.start(), heading[1]) for heading in HEADING.finditer(text))]
    parts: dict[str, list[Block]] = {title: [] for _, title in starts}
    for block in blocks(page):
        parts[max(start for start in starts if start[0] <= block.start)[1]].append(block)
    return {title: steps for title, steps in parts.items() if steps}


def variables(home: Path) -> dict[str, str]:
    """The environment of a reader's commands."""
    return {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "HOME": str(home), "PATH": os.environ["PATH"]}


def prepared(page: Path, folder: Path) -> None:
    """Do in a folder what stands before the first heading of a page."""
    reader = Reader(folder, variables(folder))
    for block in sections(page).get("", []):
        reader.do(block)


def cook(steps: list[Block], start: Path, folder: Path) -> list[str]:
    """Do one recipe in a copy of a folder; the bodies of its blocks with what is printed now.

    Args:
        steps: blocks of the recipe.
        start: what :func:`prepared` has made.
        folder: does not exist yet.
    """
    shutil.copytree(start, folder)
    reader = Reader(folder, variables(folder))
    (made,) = [path.name for path in start.iterdir() if path.is_dir()]
    reader.enter(made)
    try:
        return [reader.do(block) for block in steps]
    finally:
        reader.stop()


def rewrite(page: Path, only: str = "") -> None:
    """Write what the recipes of a page print now into the page.

    Args:
        page: the page.
        only: heading of the one recipe to write; empty: all.
    """
    with TemporaryDirectory() as folder:
        start = Path(folder).resolve() / "start"
        start.mkdir()
        prepared(page, start)
        for number, (title, steps) in enumerate(sections(page).items()):
            if not title or (only and title != only):
                continue
            for block, body in zip(steps, cook(steps, start, start.parent / str(number)), strict=True):
                text = page.read_text("utf-8")
                page.write_text(text.replace(f"\n{block.body}```", f"\n{body}```", 1), "utf-8")


if __name__ == "__main__":
    rewrite(Path(sys.argv[1]), *sys.argv[2:])
