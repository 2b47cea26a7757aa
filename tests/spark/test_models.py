"""Online models on Spark: the predictions of a loop in Python, in both modes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from events import START
from learned import learning, looped

from floodmark.testing import Run


@pytest.mark.spark
@pytest.mark.feature("M2")
def test_models_of_keys_predict_as_they_do_alone_through_a_restart() -> None:
    rows = [{"at": START + timedelta(minutes=n), "key": "ab"[n * n % 3 % 2], "value": n} for n in range(60)]
    results = Run("spark", "unbounded")(learning("line"), {"events": rows})[""]
    made = sorted(((r["key"], r["value"], r["prediction"], r["learned"]) for r in results), key=lambda row: row[1])
    assert made == looped("line", rows)
