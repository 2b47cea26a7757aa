"""Expectations of a contract, judged before a landing commits: rows set aside, landings stopped, rows counted; on both engines, as a plain loop finds."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from floodmark import Ascending, Contract, EventTime, Expectation, Files, Punctuated, Source
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import DefinitionError, ExecutionError
from floodmark.engines.landing.judging import after
from floodmark.engines.landing.quarantine import show
from floodmark.engines.spark.landing import workers
from floodmark.engines.spark.landing.run import land
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table import history
from floodmark.lake.table.commits import Landing
from floodmark.observe.status import status
from floodmark.spec.workspace import Workspace

pytestmark = pytest.mark.usefixtures("read_by_workers")

LOW, KNOWN = 5, ("a", "b")


def contract(*expectations: Expectation) -> type[Contract]:
    """With these expectations."""

    class Reading(Contract, expectations=expectations):
        """A reading."""

        at: EventTime
        sensor: str
        value: int | None
        divisor: int

    return Reading


def low(on_fail: Any, **more: Any) -> Expectation:
    return Expectation(
        "column_values_to_be_between", column="value", max_value=LOW, on_fail=on_fail, name="low", **more
    )


def known(on_fail: Any) -> Expectation:
    return Expectation(
        "column_values_to_be_in_set", column="sensor", value_set=list(KNOWN), on_fail=on_fail, name="known"
    )


def source(*expectations: Expectation, watermark: Any = None) -> Source:
    connector = Files("inbox", format="csv", min_age="0 s")
    return Source("readings", contract=contract(*expectations), connector=connector, watermark=watermark or Ascending())


def write(folder: Path, seed: int, files: int = 3, rows: int = 40) -> list[dict[str, Any]]:
    """Files of readings, some of which break the contract; those that keep it, in order."""
    rng, kept = random.Random(seed), list[dict[str, Any]]()
    (folder / "inbox").mkdir(exist_ok=True)
    for number in range(files):
        with (folder / "inbox" / f"f{seed}{number}.csv").open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["at", "sensor", "value", "divisor"])
            for index in range(rows):
                value: Any = rng.choice(["", "no number", *range(9)])
                row = [
                    f"2025-03-0{seed % 9 + 1}T{number:02}:{index:02}:00Z",
                    rng.choice("abc"),
                    value,
                    rng.randrange(4),
                ]
                out.writerow(row)
                if value != "no number":
                    kept.append(
                        dict(
                            zip(
                                ("sensor", "value", "divisor"),
                                [row[1], None if value == "" else value, row[3]],
                                strict=True,
                            )
                        )
                    )
    return kept


def landed(lake: Lake) -> list[tuple[Any, ...]]:
    """The rows of the log, in order."""
    rows = [row for row in DeltaTable(lake.log("readings")).to_pyarrow_table().to_pylist() if row["_kind"] == 0]
    return [(row["sensor"], row["value"], row["divisor"]) for row in sorted(rows, key=lambda row: row["_sequence"])]


def last(lake: Lake) -> Landing:
    return next(history.standing_of(lake.log("readings"), Landing))[1]


def is_low(row: dict[str, Any]) -> bool:
    return row["value"] is None or row["value"] <= LOW


@pytest.mark.feature("Z8", "Z11")
def test_rows_are_set_aside_or_counted_before_they_land_as_a_plain_loop_finds(
    engine: Computing, tmp_path: Path
) -> None:
    lake, code = Lake(str(tmp_path / "lake")), source(low("quarantine"), known("warn"))
    rows = write(tmp_path, 1)
    result = engine.land(code, lake, workspace=tmp_path)
    good = [row for row in rows if is_low(row)]
    assert landed(lake) == [(row["sensor"], row["value"], row["divisor"]) for row in good]
    assert result.quarantined == 120 - len(good)
    reasons = dict(show("readings", lake, limit=3).by_reason)
    (name,) = [
        reason
        for reason in reasons
        if reason.startswith("expectation 'low': the row does not meet column_values_to_be_between")
    ]
    assert reasons[name] == len(rows) - len(good)
    strange = sum(row["sensor"] not in KNOWN for row in good)
    assert last(lake).unmet == {"known": strange}
    (entry,) = status(Workspace(sources=[code]), lake)
    assert entry["unmet"] == {"known": strange}
    assert engine.replay(code, lake, workspace=tmp_path).landed == 0, "they are judged again"
    wider = engine.replay(source(known("warn")), lake, workspace=tmp_path)
    assert wider.landed == len(rows) - len(good)


@pytest.mark.feature("Z11")
@pytest.mark.parametrize("seed", [5, 6])
def test_few_bytes_are_read_in_this_process_as_sparks_workers_read_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    code = source(low("quarantine"), known("warn"))
    write(tmp_path, seed)
    lakes = {limit: Lake(str(tmp_path / f"lake{limit}")) for limit in (0, 1 << 20)}
    results, jobs = [], list[int]()
    for limit, lake in lakes.items():
        monkeypatch.setattr(workers, "_AT_HAND_BYTES", limit)
        spark.sparkContext.setJobGroup(f"landing {seed} {limit}", "")
        results.append(land(spark, code, lake, workspace=tmp_path))
        jobs.append(len(spark.sparkContext.statusTracker().getJobIdsForGroup(f"landing {seed} {limit}")))
    assert results[0] == results[1]
    by_workers, here = lakes.values()
    assert landed(by_workers) == landed(here) != []
    assert last(by_workers).unmet == last(here).unmet
    assert show("readings", by_workers, limit=200).by_reason == show("readings", here, limit=200).by_reason
    assert jobs[1] < jobs[0]


@pytest.mark.feature("Z8")
@pytest.mark.engines("embedded", soak=("spark",))
def test_a_landing_stops_before_it_commits_and_names_numbers_and_rows(engine: Computing, tmp_path: Path) -> None:
    lake, rows = Lake(str(tmp_path / "lake")), write(tmp_path, 2)
    share = sum(map(is_low, rows)) / sum(row["value"] is not None for row in rows)
    with pytest.raises(
        ExecutionError, match="EXECUTION-090 landing of 'readings': .* of .* rows, for example"
    ) as stopped:
        engine.land(source(low("stop")), lake, workspace=tmp_path)
    assert f"{sum(not is_low(row) for row in rows)} of {len(rows)} rows" in stopped.value.got
    assert landed(lake) == []
    assert engine.land(source(low("stop", mostly=max(0.0, share - 0.3))), lake, workspace=tmp_path).rows == len(rows)


@pytest.mark.engines("embedded", soak=("spark",))
def test_a_row_whose_predicate_fails_is_found_behind_rows_that_are_set_aside(engine: Computing, tmp_path: Path) -> None:
    lake, code = Lake(str(tmp_path / "lake")), source(low("quarantine"), watermark=Punctuated("6 / divisor > 1"))
    rows = write(tmp_path, 3)
    engine.land(code, lake, workspace=tmp_path)
    good = [row for row in rows if is_low(row) and row["divisor"]]
    assert landed(lake) == [(row["sensor"], row["value"], row["divisor"]) for row in good]


def test_refused_rows_of_two_judgements_are_those_of_the_unit() -> None:
    rng = random.Random(4)
    for _ in range(200):
        size = rng.randrange(1, 12)
        first = {index for index in range(size) if rng.random() < 0.4}
        left = [index for index in range(size) if index not in first]
        second = {place for place in range(len(left)) if rng.random() < 0.4}
        refused = after({7: dict.fromkeys(first, "a")}, {7: dict.fromkeys(second, "b")})
        assert refused.get(7, {}) == dict.fromkeys(first, "a") | {left[place]: "b" for place in second}


@pytest.mark.parametrize(
    ("expectation", "code"),
    [
        (Expectation("column_mean_to_be_between", column="value", max_value=3, on_fail="warn"), "DEFINITION-293"),
        (Expectation("column_values_to_be_unique", column="value", on_fail="stop"), "DEFINITION-293"),
        (Expectation("column_median_to_be_between", column="value", max_value=3, on_fail="stop"), "DEFINITION-291"),
        (low("quarantine", mostly=0.5), "DEFINITION-292"),
        (Expectation("column_values_to_not_be_null", column="valeu", on_fail="warn"), "DEFINITION-094"),
    ],
)
def test_what_a_landing_cannot_judge_is_refused_when_it_is_defined(expectation: Expectation, code: str) -> None:
    with pytest.raises(DefinitionError, match=code):
        contract(expectation)
