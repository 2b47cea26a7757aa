"""The first page and the tour: whoever pastes their commands, on a machine without Java, sees what the pages show."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from console_pages import Reader, blocks, check, form

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/tour.md"])
def test_each_command_prints_what_the_page_shows(page: str, tmp_path: Path) -> None:
    environment = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "HOME": str(tmp_path)}
    reader = Reader(tmp_path, environment)
    steps = blocks(ROOT / page)
    assert any(block.kind == "console" for block in steps)
    for block in steps:
        check(reader.do(block), block)


def test_a_command_that_prints_something_else_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '```python say.py\nprint("3 rows in 1.5 s")\n```\n\n```console\n$ python say.py\n4 rows in 2 s\n```\n'
    )
    reader = Reader(tmp_path)
    script, console = blocks(page)
    reader.do(script)
    with pytest.raises(AssertionError) as failure:
        check(reader.do(console), console)
    assert str(failure.value).splitlines()[3:-1] == [" $ python say.py", "-4 rows in <n> s", "+3 rows in <n> s"]
    assert "python tests/support/console_pages.py" in str(failure.value)


def test_who_approves_is_anybody_and_what_is_compared_by_is_not() -> None:
    assert form("aborted by ci-runner; approved by a.b, now") == form("aborted by root; approved by you, now")
    assert form("paired by country, hour") != form("paired by city, hour")


def test_no_command_in_a_page_is_left_out() -> None:
    for page in ("README.md", "docs/tour.md"):
        text = (ROOT / page).read_text("utf-8")
        run = [command for block in blocks(ROOT / page) for command, _ in block.commands]
        assert re.findall(r"^\$ (.*)$", text, re.MULTILINE) == run
