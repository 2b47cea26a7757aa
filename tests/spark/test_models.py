"""Models on Spark: the predictions of a loop in Python, and of the version that is valid."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from events import START
from fitted import MONTH, expected_delays, fitted, flights
from learned import learning, looped

from floodmark.lake.folder.paths import Lake
from floodmark.models.versions import row_of
from floodmark.testing import Run
from floodmark.testing.lakes import land
from floodmark.testing.log import Log


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.feature("M2")
def test_models_of_keys_predict_as_they_do_alone_through_a_restart() -> None:
    rows = [{"at": START + timedelta(minutes=n), "key": "ab"[n * n % 3 % 2], "value": n} for n in range(60)]
    results = Run("spark", "unbounded")(learning("line"), {"events": rows})[""]
    made = sorted(((r["key"], r["value"], r["prediction"], r["learned"]) for r in results), key=lambda row: row[1])
    assert made == looped("line", rows)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.feature("M1")
def test_a_fitted_model_takes_over_at_its_event_time(tmp_path: Path) -> None:
    rows, log = flights(60), Log(expected_delays.inputs[0].schema)
    log.rows(rows, "at", 0)
    log.end()
    land(Lake(str(tmp_path)), expected_delays, log)
    version = fitted(str(tmp_path))
    inputs = {"flights": rows, "models": [row_of(version)]}
    results = Run("spark", "unbounded")(expected_delays, inputs, event_time="at")[""]
    start = min(row["at"] for row in rows)
    for row in results:
        known = row["wind"] + 20 * row["evening"] if row["at"] >= start + MONTH else None
        assert row["model_version"] == (known and 1)
        assert row["expected"] == (known and pytest.approx(known))
