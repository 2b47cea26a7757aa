"""The first screen of README.md: what it says first, the picture, the versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from . import first_picture

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PICTURE = ROOT / "docs" / "images" / "one_definition.svg"
WIDEST = 480
"""Pixels of a picture that a telephone shows without making its text too small to read."""


def test_the_first_sentences_name_what_it_stands_on_and_that_java_is_not_needed() -> None:
    first = README.split("\n\n")[1].replace("\n", " ")
    sentence, second = first.split("** ", 1)
    assert all(name in sentence for name in ("Spark", "Delta", "Dagster", "batch", "stream"))
    assert "no Java" in second


def test_the_versions_are_those_that_are_installed_and_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = "\n".join(one for names in project["optional-dependencies"].values() for one in names)
    pinned = dict(re.findall(r"^([a-z-]+)==(\d+\.\d+)", extras, re.MULTILINE))
    line = next(line for line in README.splitlines() if line.startswith("Python 3."))
    shown = f"Spark {pinned['pyspark']} · Delta {pinned['delta-spark']} · Dagster {pinned['dagster']} · [{project['license']}]"
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer · {shown}" in line


def test_the_picture_is_that_of_a_run() -> None:
    assert PICTURE.read_text("utf-8") == first_picture.picture(), (
        "run: python tests/docs/first_picture.py > docs/images/one_definition.svg"
    )


def test_the_picture_is_readable_in_dark_mode_on_a_telephone_and_needs_nothing_else() -> None:
    text = PICTURE.read_text("utf-8")
    assert "prefers-color-scheme: dark" in text
    assert int(re.findall(r'viewBox="0 0 (\d+)', text)[0]) <= WIDEST
    assert not re.findall(r"href|url\(|@import", text)
    assert README.index("one_definition.svg") < README.index("```")


def test_each_page_is_in_the_list_of_the_first_one() -> None:
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    named = set(re.findall(r"\]\((docs/[\w/]+\.md)", README))
    assert pages - named <= {"docs/rooms.md"}


ANSWERS = {
    "Why not": ("docs/why.md", "## What they do better"),
    "How do I": ("docs/cookbook.md", "## "),
    "exactly once": ("docs/guarantees.md", "## Deliveries"),
    "deploy": ("docs/deploy.md", "## What runs"),
    "cost": ("docs/benchmarks.md", "seconds"),
    "upgrade": ("docs/upgrades.md", "## "),
}
"""Words of a stranger's question -> the page that answers it, and what stands there."""


def test_six_questions_of_a_stranger_are_answered_one_click_away() -> None:
    table = README.split("## Questions of a first look")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| question")]
    assert len(rows) == len(ANSWERS)
    for row, (words, (page, said)) in zip(rows, ANSWERS.items(), strict=True):
        assert words in row
        assert f"]({page})" in row
        assert said in (ROOT / page).read_text("utf-8")


def test_the_animations_are_those_that_the_script_makes_and_small() -> None:
    script = (ROOT / "tests" / "support" / "animations.py").read_text("utf-8")
    animations = {path.name for path in (ROOT / "docs" / "images").glob("*.webp")}
    assert animations == set(re.findall(r"``(\w+\.webp)``", script))
    assert all(f"docs/images/{name}" in README for name in animations)
    assert all((ROOT / "docs" / "images" / name).stat().st_size < 1_000_000 for name in animations)
