"""The Yahoo benchmark's closed form under SIGKILL: ten views per campaign and window, whatever dies when."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from ysb_process import ADS, CAMPAIGNS, generate, source, views

from floodmark.control.processes.engine import Computing
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline

PROGRAM = Path(__file__).with_name("ysb_process.py")
ROUNDS, FILES = 4, 28
PATIENCE_SECONDS = 300


def planned(lake: Lake) -> int:
    """The last micro-batch that was begun, on either engine; -1 for none."""
    checkpoint = Timeline.current(lake, "views").folder(CHECKPOINT)
    files = [path.name for log in ("offsets", "batches") for path in Path(checkpoint, log).glob("*")]
    return max((int(name) for name in files if name.isdecimal()), default=-1)


def killed_at_work(lake: Lake, engine: str, rng: random.Random) -> bool:
    """Run the stream until it has begun a new micro-batch, and kill it at random soon after; False where it had finished first."""
    before = planned(lake)
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), lake.root, str(lake.logs), engine],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    end = time.monotonic() + PATIENCE_SECONDS
    while planned(lake) <= before and process.poll() is None:
        assert time.monotonic() < end, "the stream does not begin"
        time.sleep(0.05)
    time.sleep(rng.uniform(0, 1 if engine == "spark" else 0.1))
    hit = process.poll() is None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return hit


@pytest.mark.soak
@pytest.mark.feature("E1", "F8")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [3, 20])
def test_ten_views_per_campaign_and_window_after_random_kills(engine: Computing, tmp_path: Path, kills: int) -> None:
    rounds, files = (ROUNDS, FILES) if kills == 3 else (4 * ROUNDS, 4 * FILES)
    generate(tmp_path / "inbox", rounds, files)
    lake = Lake(str(tmp_path / "lake"), logs=str(tmp_path / "logs"))
    engine.land(source(tmp_path / "inbox"), Lake(str(tmp_path / "logs")), end=True)
    rng = random.Random(11)
    hits = sum(killed_at_work(lake, engine.name, rng) for _ in range(kills))
    assert hits == kills, f"only {hits} of {kills} kills found the stream at work: give it more files"
    engine.run_unbounded(views, lake, until_caught_up=True)
    table = DeltaTable(lake.output("views")).to_pyarrow_table()
    rows = [row for row in table.to_pylist() if row["_kind"] == 0]
    assert {row["views"] for row in rows} == {ADS}
    assert len(rows) == rounds * CAMPAIGNS == len({(row["campaign"], row["window_start"]) for row in rows})
