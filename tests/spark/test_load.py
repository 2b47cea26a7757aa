"""Load at fixed rates: the program that measures delays, small, on both engines."""

from __future__ import annotations

from argparse import Namespace
from importlib import import_module
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.mark.feature("H10", "Z32")
@pytest.mark.engines("embedded", "spark")
def test_delays_at_rising_rates_are_those_of_all_rows(monkeypatch: pytest.MonkeyPatch, engine_name: str) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    load = import_module("load")
    asked = Namespace(
        rates=[100, 400],
        seconds=0.5,
        files=10,
        poll="50 ms",
        judged=True,
        isolated=False,
        behind=load.PATIENCE_SECONDS,
    )
    rows = load.chain(engine_name, "300 ms", asked)
    assert [(row["rate"], row["rows"], row["all rows"]) for row in rows] == [(100, 98, True), (400, 392, True)]
    for row in rows:
        assert 0 < row["p50"] <= row["p99"] <= row["p99.9"] <= row["greatest"]
