"""What a worker may use of its memory limit, and what of the limit of Spark's workers follows for Spark's settings."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from floodmark.core import cores
from floodmark.core.errors import SetupError
from floodmark.engines.frames.portions import portions
from floodmark.engines.spark.session import builder, limits
from floodmark.engines.spark.session.executors import Launches

MIB = 1 << 20


def _worker_memory(limit: int | None) -> int:
    """In a process of its own, with a limit of address space that is set once it has its imports, as Spark does."""
    limited = "" if limit is None else f"resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}));"
    program = (
        "import resource; from floodmark.core.memory import worker_memory;"
        f"{limited} print(worker_memory(), worker_memory())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, again = done.stdout.split()
    assert first == again
    return int(first)


@pytest.mark.feature("K10")
@pytest.mark.skipif(sys.platform != "linux", reason="a limit of address space holds on Linux")
def test_what_is_taken_of_a_limit_before_the_first_row_is_no_room_for_rows() -> None:
    share = psutil.virtual_memory().total // cores.available()
    assert _worker_memory(None) == share
    assert 0 < _worker_memory(1024 * MIB) < 1024 * MIB - 8 * MIB, "an interpreter with psutil has more than this"
    assert _worker_memory(1 << 45) == share


def _limit(**settings: str) -> int | None:
    return limits.limit({f"spark.executor.{name.replace('_', '.')}": text for name, text in settings.items()})


def test_the_limit_of_each_worker_is_what_spark_makes_of_its_settings() -> None:
    assert _limit() is None
    assert _limit(pyspark_memory="1g") == 1024 * MIB
    assert _limit(pyspark_memory="700") == 700 * MIB
    assert _limit(pyspark_memory="2048mb", cores="2") == 1024 * MIB
    assert _limit(pyspark_memory="1048577k", cores="3") == 341 * MIB
    assert _limit(pyspark_memory="much") is None
    assert _limit(pyspark_memory="1g", cores="none") is None


def test_batches_of_rows_fit_into_what_is_left_of_the_limit() -> None:
    batch = "spark.sql.execution.arrow.maxBytesPerBatch"
    assert limits.following({}) == {}
    assert limits.following({limits.MEMORY: "1g"}) == {batch: str(39 * MIB)}
    assert limits.following({limits.MEMORY: "16g"}) == {batch: str(64 * MIB)}
    least = limits.following({limits.MEMORY: "512m"})
    assert least == {batch: str(7 * MIB)}


def test_a_limit_in_which_workers_have_no_room_is_refused_with_the_least() -> None:
    with pytest.raises(SetupError) as refused:
        limits.following({limits.MEMORY: "1g", "spark.executor.cores": "4"})
    assert str(refused.value) == (
        "SETUP-111 Settings(spark=...), spark.executor.pyspark.memory: expected at least 512 MiB per worker, got 256 MiB "
        "(1g, spark.executor.cores 4). The limit is one of address space, of which imported modules take 400 MiB. "
        'Set ("spark.executor.pyspark.memory", "2048m") or more in Settings(spark=...), or leave it out.'
    )
    with pytest.raises(SetupError, match=r'got 300 MiB \(300m\).*"512m"'):
        limits.following({limits.MEMORY: "300m"})


@pytest.mark.feature("K10")
def test_a_portion_is_no_larger_than_asked_for() -> None:
    rows = pa.table({"group": pa.array([1] * 1000 + [2] * 10, pa.int32()), "payload": ["x" * 100] * 1010})
    for step in (7, 90, 400, 1010):
        got = list(portions(rows.to_batches(max_chunksize=step), 10_000))
        assert [group for group, _, last in got if last] == [1, 2]
        assert sum(part.num_rows for _, part, _ in got) == 1010
        assert max(part.nbytes for _, part, _ in got) <= 10_200, "and a row's worth"


def test_what_workers_say_of_their_limit_in_each_task_is_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    said = (
        "Current mem limits: -1 of max -1",
        "",
        "Setting mem limits to 1073741824 of max 1073741824",
        "",
        "a warning",
        "",
    )
    os.write(writer, "\n".join(said).encode())
    os.close(writer)
    last_lines: deque[str] = deque(maxlen=5)
    builder._forward(reader, last_lines, Launches())
    assert capfd.readouterr().err == "a warning\n"
    assert list(last_lines) == ["a warning"]


@pytest.mark.parametrize(
    ("extra", "kept"),
    [
        ({}, "20"),
        ({"spark.ui.enabled": "true"}, None),
        ({"spark.ui.retainedJobs": "7"}, "7"),
    ],
)
def test_java_keeps_little_of_the_past_for_a_ui_that_is_off(
    tmp_path: Path, extra: dict[str, str], kept: str | None
) -> None:
    settings = dict(builder._conf("a", "local[2]", "1g", extra, tmp_path / "none").getAll())
    assert settings.get("spark.ui.retainedJobs") == kept
    assert settings.get("spark.sql.ui.retainedExecutions") == (None if kept is None else "20")
