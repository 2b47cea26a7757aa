"""Check that every link inside README.md and docs/ leads to a file that exists, and say where the docs are."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\((?!\w+://|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    links = LINK.findall(page.read_text("utf-8"))
    return [f"{page.relative_to(ROOT)}: {link}" for link in links if not (page.parent / link).exists()]


def main() -> int:
    """0 when all links lead somewhere."""
    pages = [ROOT / "llms.txt", *sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    wrong = [line for page in pages for line in broken(page)]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(
        f"{len(pages)} pages, {len(wrong)} broken links; start reading at {'docs/' if (ROOT / 'docs').is_dir() else 'README.md'}"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
