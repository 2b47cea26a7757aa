"""Texts that are tried on formats of times: every format is found again, other texts are tried on none."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from floodmark.cli.new.inference import look, times

MOMENTS = [
    datetime(2021, 1, 13, 5, 6, 7, 890000, UTC),
    datetime(1999, 9, 24, 23, 59, 1, 500000, UTC),
    datetime(2024, 12, 31, 12, 0, 0, 1, UTC),
]


FORMS = [form for form in times.FORMATS if form.endswith("%Y") or form.startswith(("%d %B %Y", "%a"))]
"""Every date, and every clock."""


@pytest.mark.parametrize("form", FORMS)
def test_a_time_is_found_in_whatever_format_it_is_written(form: str) -> None:
    texts = pa.chunked_array([[moment.strftime(form) for moment in MOMENTS]])
    found = times.written(texts)
    assert found is not None
    assert found.misfits == 0


@pytest.mark.parametrize(
    "text",
    ["https://api.github.com/users/21031067/orgs", "MDQ6VXNlcjIxMDMxMDY3", "Codertocat", "a 12 Jan 2024", "x" * 50],
)
def test_a_text_that_is_no_time_is_tried_on_no_format(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "_fits", lambda *_: pytest.fail("a format was tried"))
    assert times.written(pa.chunked_array([[text] * 3])) is None


def test_a_time_that_is_the_same_in_all_rows_is_the_event_time_only_if_no_other_is_one(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(
        "".join(f'{{"load_timestamp": 1445680800424, "timestamp": {1446249499322 + n}}}\n' for n in range(3))
    )
    assert look(file).event_time == "timestamp"
    file.write_text('{"load_timestamp": 1445680800424, "n": 1}\n' * 3)
    assert look(file).event_time == "load_timestamp"


def test_numbers_since_1970_inside_documents_are_times_where_they_are_named_so(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(
        "".join(f'{{"properties": {{"mag": 1.5, "time": {1517966037750 + n}, "tz": -480}}}}\n' for n in range(3))
    )
    found = look(file).fields[0]
    assert (found.path, found.type, found.format) == (("properties", "time"), "datetime", "epoch ms")
