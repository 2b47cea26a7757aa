"""The programs of docs/calls.md run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from events import START
from page_programs import module_of

from floodmark.testing import IN_MEMORY

PAGE = Path(__file__).parents[2] / "docs" / "calls.md"


def program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that the programs of the page are together."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    return module_of(folder / "calls_page.py", code, monkeypatch)


def test_the_programs_of_the_page_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, run = program(tmp_path, monkeypatch), IN_MEMORY[1]
    addresses = ["1.2.3.4", "8.8.8.8", "10.0.0.1", "1.9.9.9"]
    visits = [{"at": START, "address": address, "page": "/"} for address in addresses]
    countries = run(page.per_country, {"visits": visits})[""]
    assert [(row["country"], row["visits"]) for row in countries] == [("DE", 1), ("NL", 2)]
    named = run(page.with_country, {"visits": visits})[""]
    assert {row["address"]: row["country"] for row in named} == {
        "1.2.3.4": "NL",
        "8.8.8.8": "DE",
        "10.0.0.1": "DE",
        "1.9.9.9": "NL",
    }
