"""The programs of docs/models.md run as they stand there."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from events import START
from page_programs import module_of

from floodmark.testing import IN_MEMORY

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


@pytest.mark.feature("M2")
def test_the_programs_of_the_page_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    page, run = module_of(tmp_path / "models_page.py", code, monkeypatch), IN_MEMORY[1]
    flights = [
        {"at": START + timedelta(minutes=n), "origin": "JFK", "wind": n % 30 / 1.0, "delay": 2.0 * (n % 30) + 5}
        for n in range(600)
    ]
    expected = run(page.expected_delays, {"flights": flights})[""]
    assert [row["learned"] for row in expected] == list(range(600))
    assert all(abs(row["expected"] - row["delay"]) < 1 for row in expected[-30:])
    strange = [flights[0] | {"at": START + timedelta(days=1), "delay": 5000.0}]
    watched = run(page.watched_delays, {"flights": flights[:10] + strange})[""]
    assert [row["begun_anew"] for row in watched].count(True) == 1
    assert page.PENALISED.kind.text.startswith("model<LinearRegression, river 0.")
    assert [given.name for given in page.scored_delays.inputs] == ["flights", "versions"]
    assert page.scored_delays.output("").schema.types["expected"] == "double"
