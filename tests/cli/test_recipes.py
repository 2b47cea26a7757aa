"""Pages of recipes: each, in a copy of the folder that the page begins with, prints what the page shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from console_pages import Block, check, ran
from recipes import cook, prepared, sections

ROOT = Path(__file__).parents[2]
REFERENCES = ("savepoints", "experiments", "comparison", "backfills", "rollouts")
"""Pages whose commands stand in a recipe, the tour or another test, too."""
PAGES = {name: sections(ROOT / "docs" / f"{name}.md") for name in ("cookbook", "coming_from", *REFERENCES)}
RECIPES = [(page, title) for page, steps in PAGES.items() for title in steps if title]
TOLD_IN_THE_TOUR = {"Change a window", "Roll back"}
MOST_LINES = 15


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Page -> the folder that its recipes begin with, made when one of them is asked for."""

    @cache
    def folder(page: str) -> Path:
        made = tmp_path_factory.mktemp(page)
        prepared(ROOT / "docs" / f"{page}.md", made)
        return made

    return folder


@pytest.mark.feature("O9")
@pytest.mark.parametrize(
    ("page", "title"),
    [
        pytest.param(page, title, marks=[pytest.mark.soak] * (title in TOLD_IN_THE_TOUR or page in REFERENCES))
        for page, title in RECIPES
    ],
)
@pytest.mark.few(5)
def test_a_recipe_prints_what_the_page_shows(
    page: str, title: str, kitchen: Callable[[str], Path], tmp_path: Path
) -> None:
    steps = PAGES[page][title]
    printed = cook(steps, kitchen(page), tmp_path / "kitchen")
    for body, step in zip(printed, steps, strict=True):
        check(body, step)


def written(steps: list[Block]) -> list[int]:
    """Lines of code that a reader writes, without empty ones, of each block."""
    return [sum(bool(line.strip()) for line in step.body.splitlines()) for step in steps if step.kind != "console"]


def test_recipes_of_the_cookbook_are_short_and_each_is_in_its_list() -> None:
    listed = (ROOT / "docs" / "cookbook.md").read_text("utf-8").split("## ", 1)[0]
    for title, steps in PAGES["cookbook"].items():
        assert all(lines <= MOST_LINES for lines in written(steps)), title
        assert not title or f"(#{title.lower().replace(',', '').replace(' ', '-')})" in listed


def test_code_that_a_page_quotes_is_in_an_example() -> None:
    examples = "\n".join(path.read_text("utf-8") for path in (ROOT / "examples" / "differences").glob("*.py"))
    quoted = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "coming_from.md").read_text("utf-8"), re.M | re.S)
    assert quoted
    assert all(line.strip() in examples for block in quoted for line in block.splitlines())
    ran(*quoted)
