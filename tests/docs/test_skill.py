"""SKILL.md and llms.txt name verbs that exist, and tools that `floodmark mcp` has."""

from __future__ import annotations

import re
from pathlib import Path

from floodmark.cli.main import VERBS
from floodmark.cli.verbs.reading.mcp import Verbs

ROOT = Path(__file__).parents[2]


def test_each_verb_that_is_named_exists() -> None:
    for page in (
        "SKILL.md",
        "llms.txt",
        "README.md",
        "docs/cookbook.md",
        "docs/coming_from.md",
        "docs/running.md",
        "docs/why.md",
    ):
        named = set(
            re.findall(
                r"(?<![/\w])floodmark ([a-z-]+)\b(?=[^|\n]*[`\"$]|.*$)",
                "\n".join(
                    re.findall(r"`floodmark [^`\n]*|^\$ floodmark .*$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
                ),
            )
        )
        assert named <= VERBS.keys(), page


def test_each_tool_is_in_the_list() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "SKILL.md").read_text("utf-8"), re.MULTILINE)
    assert listed == [name for name in vars(Verbs) if not name.startswith("_") and callable(getattr(Verbs, name))]
