"""The page of patterns: each of its programs runs as it stands, with what it expects."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from console_pages import ran
from pattern_cases import CASES, PROGRAMS
from table_programs import PATTERNS

PAGE = Path(__file__).parents[2] / "docs" / "patterns.md"


@pytest.mark.feature("C1", "C2")
def test_the_programs_of_the_page_run_one_after_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 3
    module = tmp_path / "patterns_page.py"
    module.write_text("\n".join(blocks), "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import patterns_page  # type: ignore[import-not-found]

    names: Any = patterns_page
    ran(*blocks)
    assert [operator.name for operator in (names.frauds, names.paid)] == ["frauds", "paid"]
    assert names.rising.names == ("first", "higher")
    assert names.limited.last.greedy


@pytest.mark.feature("C1")
def test_the_table_of_the_page_has_the_numbers_of_the_cases() -> None:
    lines = re.findall(r"^\|[^|]*, (\d+)[,:] [^|]*\|(.*)\|$", PAGE.read_text("utf-8"), re.MULTILINE)
    judged = Counter(verdict["verdict"] for verdict in PATTERNS.verdicts.values())
    numbers = [(len(CASES), 0, 0), (len(PROGRAMS), 0, 0), tuple(judged[n] for n in ("passed", "different", "refused"))]
    told = [(int(of), *(int(number.strip() or 0) for number in numbers.split("|"))) for of, numbers in lines]
    assert told == [(sum(row), *row) for row in numbers]
