"""Blocks of pages that a test has run, beside what ``tests/docs/blocks.toml`` says that it runs: compared when the test has passed, in its own process.

What runs a block tells it by :func:`console_pages.ran`. A test that ``blocks.toml`` names and that has not run one of its blocks, line by line, fails (``tests/conftest.py``).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from console_pages import FENCE, RAN
from recipes import sections

ROOT = Path(__file__).parents[2]
LISTED = ROOT / "tests" / "docs" / "blocks.toml"
HEADING, NUMBER = "title", "number"
"""Parameters of a test that choose: the blocks below one heading of a page, or one block."""
COMMANDS = frozenset({"bash", "console"})
_NOT_RUN = re.compile(r"(cd|pip install) ")
"""Where a reader stands, and what is installed: the package is in no registry yet."""


@dataclass(frozen=True, slots=True)
class Claim:
    """That a test runs blocks of a page in one language.

    Args:
        page: its path in the repository.
        kind: language.
        test: file and function; or a file, whose text has the commands.
        chosen: numbers of the blocks from 1, the parameter that chooses them, or empty for all.
    """

    page: str
    kind: str
    test: str
    chosen: str

    @property
    def bodies(self) -> dict[int, str]:
        """Number -> the block, of all in the language."""
        return dict(enumerate(_bodies(self.page, self.kind), 1))

    @property
    def numbers(self) -> frozenset[int]:
        """The blocks that the test runs with all its parameters together."""
        if self.chosen == HEADING:
            steps = [block.body for blocks in sections(ROOT / self.page).values() for block in blocks]
            return frozenset(number for number, body in self.bodies.items() if body in steps)
        if self.chosen in {"", NUMBER}:
            return frozenset(self.bodies)
        return frozenset(int(number) for number in self.chosen.split(","))

    def of(self, parameters: Mapping[str, Any]) -> frozenset[int]:
        """The blocks that the test runs with some parameters; none where its parameter ``page`` is another page."""
        page = parameters.get("page", self.page)
        if page not in {self.page, Path(self.page).stem}:
            return frozenset()
        if self.chosen == HEADING:
            steps = [block.body for block in sections(ROOT / self.page)[parameters[HEADING]]]
            return frozenset(number for number, body in self.bodies.items() if body in steps)
        return frozenset({parameters[NUMBER] + 1}) if self.chosen == NUMBER else self.numbers


@cache
def _bodies(page: str, kind: str) -> tuple[str, ...]:
    found = FENCE.finditer((ROOT / page).read_text("utf-8"))
    return tuple(block["body"] for block in found if block["kind"] == kind)


@cache
def claims() -> tuple[Claim, ...]:
    """All that ``blocks.toml`` says."""
    listed: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(LISTED.read_text("utf-8"))
    return tuple(
        Claim(page, kind, *entry.partition("#")[::2])
        for page, kinds in listed.items()
        for kind, blocks in kinds.items()
        for entry in blocks["by"]
    )


@cache
def claims_of(test: str) -> tuple[Claim, ...]:
    """What a test says that it runs: its file and its function."""
    return tuple(claim for claim in claims() if claim.test == test)


def unrun(claims: Sequence[Claim], parameters: Mapping[str, Any]) -> list[str]:
    """Lines of blocks that the test which has just run says that it runs, and has not."""
    text = "\n".join(line.strip() for one in RAN for line in one.splitlines())
    return [
        f"{claim.page}, block {number} of {claim.kind}: {line}"
        for claim in claims
        for number in sorted(claim.of(parameters))
        for line in lines(claim.kind, claim.bodies.get(number, "there is no such block"))
        if line not in text
    ]


def lines(kind: str, body: str) -> Iterator[str]:
    """What a reader would run of a block, line by line; of a console's its commands."""
    shown = [line for line in body.splitlines() if line.startswith("$ ")]
    for line in shown if kind == "console" and shown else body.splitlines():
        text = line.removeprefix("$ ").partition(" #")[0].strip() if kind in COMMANDS else line.strip()
        if text and not (kind in COMMANDS and _NOT_RUN.match(text)):
            yield text
