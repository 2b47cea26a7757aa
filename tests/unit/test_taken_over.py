"""What bounded runs have computed and a stream that began has removed or keeps, from the tables' logs alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import write_deltalake
from records import bounded_run, micro_batch, properties
from small_lake import CHANGELOG, LOG, TOTALS, schema

from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results.readiness import coverage, replaces_each
from floodmark.lake.table.commits import Record

HOUR = 3_600_000
FIVE = Interval(start=0, end=5 * HOUR)


def note(lake: Lake, record: Record) -> None:
    """A commit with that record."""
    nothing = schema(TOTALS.outputs[0]).empty_table()
    write_deltalake(lake.output(CHANGELOG), nothing, mode="append", commit_properties=properties(record))


def bounded(lake: Lake, *, fingerprint: str = TOTALS.fingerprint, late_rows: str = "as_landed") -> None:
    """A bounded run of five hours."""
    write_deltalake(lake.log(LOG), schema(TOTALS.outputs[0]).empty_table())
    run = {"fingerprint": fingerprint, "late_rows": late_rows, "inputs": {LOG: {"version": 0}}, "interval": FIVE}
    note(lake, bounded_run(version=TOTALS.version, **run))


def streamed(lake: Lake, progress: int) -> None:
    """A micro-batch."""
    note(lake, micro_batch(progress=progress))


@pytest.mark.parametrize(
    ("progress", "end"), [(None, 5 * HOUR), (2 * HOUR, 2 * HOUR - 15 * 60_000 + 1), (6 * HOUR, 5 * HOUR)]
)
def test_what_is_computed_ends_where_a_stream_that_took_over_has_got_to(
    tmp_path: Path, progress: int | None, end: int
) -> None:
    lake = Lake(str(tmp_path))
    bounded(lake)
    if progress is not None:
        streamed(lake, progress)
    assert [one.interval for one in coverage(TOTALS, lake, FIVE)] == [Interval(start=0, end=end)]


def test_last_values_stay_where_the_stream_will_compute_the_same_keys(tmp_path: Path) -> None:
    main = TOTALS.outputs[0]
    for name, settings in {"other": {"fingerprint": "f"}, "all": {"late_rows": "all"}}.items():
        bounded(lake := Lake(str(tmp_path / name)), **settings)
        assert not replaces_each(TOTALS, lake, main), name
    bounded(lake := Lake(str(tmp_path / "same")))
    assert replaces_each(TOTALS, lake, main)
    streamed(lake, 0)
    assert not replaces_each(TOTALS, lake, main), "a stream's rows, of which nothing is known any more"
