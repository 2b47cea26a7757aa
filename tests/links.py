"""Check that every link in README.md, llms.txt, docs/ and examples/ leads to a file, and to a heading where it names one; say where the docs are."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\((?!\w+://|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def pages() -> list[Path]:
    """All pages, in order."""
    folders = (ROOT / "docs", ROOT / "examples", ROOT / "floodmark-airflow")
    below = (page for folder in folders for page in sorted(folder.rglob("*.md")) if ".venv" not in page.parts)
    return [ROOT / "llms.txt", *sorted(ROOT.glob("*.md")), *below]


@cache
def anchors(page: Path) -> frozenset[str]:
    """The names that links give to the headings of a page: as GitHub makes them, words with dashes between."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    names: list[str] = []
    for heading in HEADING.findall(text):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        names.append(f"{name}-{names.count(name)}" if name in names else name)
    return frozenset(names)


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    links = LINK.findall(CODE.sub(" ", page.read_text("utf-8")))
    return [
        f"{page.relative_to(ROOT)}: {link}{'#' * bool(anchor)}{anchor}"
        for link, anchor in links
        if not _leads(page, link, anchor)
    ]


def _leads(page: Path, link: str, anchor: str) -> bool:
    target = page.parent / link if link else page
    return target.exists() and (not anchor or target.suffix != ".md" or anchor in anchors(target))


def main() -> int:
    """0 when all links lead somewhere."""
    wrong = [line for page in pages() for line in broken(page)]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(
        f"{len(pages())} pages, {len(wrong)} broken links; start reading at {'docs/' if (ROOT / 'docs').is_dir() else 'README.md'}"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
