"""The cookbook: each recipe, in a copy of the shop that the page begins with, prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from console_pages import Block, form
from recipes import cook, prepared, sections

PAGE = Path(__file__).parents[2] / "docs" / "cookbook.md"
RECIPES = {title: steps for title, steps in sections(PAGE).items() if title}
TOLD_IN_THE_TOUR = {"Change a window", "Roll back"}
MOST_LINES = 15


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cookbook")
    prepared(PAGE, folder)
    return folder


@pytest.mark.parametrize(
    "title", [pytest.param(one, marks=[pytest.mark.soak] * (one in TOLD_IN_THE_TOUR)) for one in RECIPES]
)
def test_a_recipe_prints_what_the_page_shows(title: str, start: Path, tmp_path: Path) -> None:
    steps = RECIPES[title]
    printed = cook(steps, start, tmp_path / "kitchen")
    assert [form(body) for body in printed] == [form(step.body) for step in steps]


def written(steps: list[Block]) -> list[int]:
    """Lines of code that a reader writes, without empty ones, of each block."""
    return [sum(bool(line.strip()) for line in step.body.splitlines()) for step in steps if step.kind != "console"]


def test_recipes_are_short_and_each_is_in_the_list_of_the_page() -> None:
    assert all(lines <= MOST_LINES for steps in RECIPES.values() for lines in written(steps))
    listed = PAGE.read_text("utf-8").split("## ", 1)[0]
    assert [f"(#{title.lower().replace(',', '').replace(' ', '-')})" in listed for title in RECIPES] == [True] * len(
        RECIPES
    )
