"""The programs of ``bench`` at small sizes: what they measure is right, and what is wrong they refuse."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

import duckdb
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded

BENCH = Path(__file__).resolve().parents[2] / "bench"


def program(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A program of ``bench`` as a module."""
    monkeypatch.syspath_prepend(str(BENCH))
    return import_module(name)


@pytest.mark.feature("H7")
def test_a_sort_is_validated_record_by_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    relational = program("relational", monkeypatch)
    relational.make(tmp_path, "sort", Namespace(records=16_000))
    for system in (relational.floodmark, relational.duck):
        out = tmp_path / system.__name__
        out.mkdir()
        system(tmp_path, "sort", out)
        assert relational.right(tmp_path, "sort", out)
    rows = pq.read_table(tmp_path / "duck" / "0.parquet")
    changed = rows.slice(1).append_column("n", pa.array(range(15_999))).drop_columns("n")
    for name, wrong in {
        "unsorted": pa.concat_tables([rows.slice(8_000), rows.slice(0, 8_000)]),
        "lost": changed,
        "twice": pa.concat_tables([rows.slice(0, 1), rows.slice(0, 1), rows.slice(2)]),
    }.items():
        (tmp_path / name).mkdir()
        pq.write_table(wrong, tmp_path / name / "0.parquet")
        assert not relational.right(tmp_path, "sort", tmp_path / name), name


@pytest.mark.feature("H8")
def test_a_large_side_joins_a_small_one_as_in_duckdb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    relational = program("relational", monkeypatch)
    relational.make(tmp_path, "join", Namespace(orders=40_000, shops=100))
    (out := tmp_path / "out").mkdir()
    relational.floodmark(tmp_path, "join", out)
    assert relational.right(tmp_path, "join", out)
    rows = pq.read_table(out / "0.parquet")
    assert rows.num_rows == 50
    pq.write_table(rows.slice(1), out / "0.parquet")
    assert not relational.right(tmp_path, "join", out)


@pytest.mark.feature("H9")
def test_the_cost_of_a_checkpoint_is_the_slope_over_micro_batches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    growth, sail = program("growth", monkeypatch), Sail(memory=300)
    monkeypatch.setattr(growth, "FILES", 16)
    try:
        with sail.lent() as connection:  # servers of other tests may be at work beside them
            processes = psutil.Process(), psutil.Process(connection.server.pid)
        monkeypatch.setattr(growth, "cpu", lambda: sum(sum(one.cpu_times()[:2]) for one in processes))
        growth.landed(sail, tmp_path, 16_000, 100, 16)
        rows = growth.intervals("embedded", run_unbounded, sail, tmp_path, 16_000, [1, 2, 4, 8, 16, 64])
    finally:
        sail.close()
    counts = [row["micro-batches"] for row in rows]
    assert counts[:2] == [17, 9], "a file each, and the end of input"
    assert counts == sorted(counts, reverse=True)
    assert rows[0]["cpu"] > rows[-1]["cpu"], "more commits cost more"
    assert 0 < rows[-1]["share"] < rows[0]["share"] < 1


@pytest.mark.feature("H4", "H6")
@pytest.mark.parametrize("campaigns", [100, 1_000_000])
@pytest.mark.few(1)
def test_rows_that_are_made_in_the_process_count_as_files_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, campaigns: int
) -> None:
    variants, data, systems = (program(name, monkeypatch) for name in ("variants", "data", "systems"))
    data.generate(tmp_path, 16_000, campaigns, 8)
    systems.duckdb_batch(tmp_path)
    counts, *_ = variants.made(16_000, campaigns)
    assert counts == variants.right(tmp_path)


def test_another_systems_answer_is_compared_row_by_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    contenders = program("contenders", monkeypatch)
    ours = f"{tmp_path}/answer.parquet"
    duckdb.sql(
        f"COPY (SELECT 7::BIGINT AS campaign, TIMESTAMPTZ '2024-01-01 00:00:10Z' AS window_start, 3::BIGINT AS views) TO '{ours}'"
    )
    start = 1_704_067_210_000
    for views, equal in ((3, True), (4, False)):
        table = pa.table({"campaign": [7], "window_start": [start], "views": [views]})
        pq.write_table(table, tmp_path / "theirs.parquet")
        assert contenders.is_equal(tmp_path, tmp_path / "theirs.parquet") == equal
    (tmp_path / "changes.csv").write_text(
        f"campaign,window_start,views,time,diff\n7,{start},2,1,1\n7,{start},2,2,-1\n7,{start},3,2,1\n"
    )
    assert contenders.is_equal(tmp_path, tmp_path / "changes.parquet")


def test_a_measurement_replaces_the_one_of_the_same_name_and_a_picture_is_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measurements, plots = program("measurements", monkeypatch), program("plots", monkeypatch)
    monkeypatch.setattr(measurements, "FOLDER", tmp_path / "results")
    assert plots.latency() is None, "nothing is drawn of nothing"
    row = {"engine": "embedded", "interval": "", "files": 10, "judged": False, "kept up": True}
    for p99 in (0.5, 0.25):
        cuts = {"p50": 0.1, "p99": p99, "p99.9": 0.6}
        measurements.keep("load", [row | cuts | {"rate": rate} for rate in (1_000, 10_000)], ("engine", "rate"))
    kept = json.loads((tmp_path / "results" / "load.json").read_text())
    assert [one["p99"] for one in kept] == [0.25, 0.25]
    picture = plots.latency()
    assert picture is not None
    assert all(text in picture for text in ("embedded, p50", "embedded, p99.9", "10,000"))


def test_all_benchmarks_together_may_take_forty_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = program("all", monkeypatch)
    assert sum(chosen.minutes for chosen in everything.PROGRAMS.values()) <= everything.MOST_MINUTES
    for chosen in everything.PROGRAMS.values():
        assert (BENCH / chosen.words[0]).exists()


def test_a_benchmark_that_fails_or_is_cut_is_named_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    everything = program("all", monkeypatch)
    programs = {
        "fails.py": "import sys; sys.exit(3)",
        "endless.py": f"""
import os, signal, subprocess, sys
begun = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
open({str(tmp_path / "pid")!r}, "w").write(str(begun.pid))
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pause()""",
        "measures.py": f"""
import pathlib
folder = pathlib.Path({str(tmp_path / "results")!r})
folder.mkdir()
(folder / "systems.json").write_text('[{{"system": "other", "left out": "it is not installed"}}, {{"system": "own"}}]')""",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(everything, "HERE", tmp_path)
    monkeypatch.setattr(everything, "MADE", tmp_path)
    monkeypatch.setattr(everything, "PATIENCE_SECONDS", 0.5)
    chosen = {name: everything.program(name, 0.02 if name == "endless.py" else 5) for name in programs}
    assert everything.run_all(chosen)
    told = capfd.readouterr().out
    assert re.search(r"fails.py: [0-9.]+ min, [0-9.]+ of processors, ended with 3\n", told)
    assert "of processors, cut after 0.02 minutes" in told
    assert re.search(r"measures.py: [0-9.]+ min, [0-9.]+ of processors\n  without other: it is not installed\n", told)
    pid = tmp_path / "pid"
    if pid.exists() and pid.read_text():  # on a busy machine it may have been cut before that
        with suppress(psutil.NoSuchProcess):
            assert psutil.Process(int(pid.read_text())).status() == psutil.STATUS_ZOMBIE  # nobody has asked for it yet


def test_a_system_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    contenders = program("contenders", monkeypatch)
    monkeypatch.setattr(contenders, "ENVIRONMENTS", tmp_path / "none")
    row = contenders.run_contender("bytewax stream", tmp_path, tmp_path / "answer.parquet")
    assert row == {"left out": contenders.environment("bytewax")}
    assert "bytewax is not installed: python bench/contenders.py --install" in row["left out"]


def test_an_environment_that_cannot_be_made_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    contenders = program("contenders", monkeypatch)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(contenders, "ENVIRONMENTS", tmp_path / "file")
    assert "no environment could be made in" in contenders.install("bytewax")


def test_a_benchmark_that_a_system_ends_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = program("run", monkeypatch)

    def fails(*_: object) -> None:
        msg = "spark streaming failed:\nno Java"
        raise run.SystemFailedError(msg)

    measured = list[str]()
    monkeypatch.setattr(run, "ysb", fails)
    monkeypatch.setattr(run, "small", lambda *_: measured.append("small"))
    options = Namespace(only=["ysb", "small"], rows=1, keys=[1], micro_batches=[1], small=[1], files=1, repeats=1)
    assert run.measure(options, run.Results(), tmp_path) == ["ysb"]
    assert measured == ["small"]
    assert "ysb ends here, the others are measured: spark streaming failed:\nno Java" in capsys.readouterr().out
