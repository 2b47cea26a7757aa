"""Four processes that write into an inbox, in place and by renames, while ``land --end`` runs until the source has ended."""

from __future__ import annotations

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from inbox_clock import no_sail, source
from seeds import seed_of

from floodmark.core.errors import LifecycleError
from floodmark.engines.embedded.landing.run import land
from floodmark.lake.folder.paths import Lake

AGE = 3
"""Seconds for which a file must be unchanged; the longest pause of a writer is a tenth of that."""
LONGEST = AGE * 1_000_000_000 - 50_000_000
"""The longest time without a change, ns, that is no such time to the landing: the clock of files is coarser than its own."""
ROWS = 40
WRITER = """
import os, random, sys, time
folder, writer, seed, rows, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
draw, seen = random.Random(seed), []
for number in range(2):
    name = os.path.join(folder, f"{writer}-{number}.csv")
    by_rename = draw.random() < 0.3
    with open(name + ".part" * by_rename, "w") as file:
        seen.append(os.fstat(file.fileno()).st_mtime_ns)
        first = 1000 * (2 * writer + number)
        for line in ["at,key\\n", *(f"2020-01-01T00:00:00Z,{n:06d}\\n" for n in range(first, first + rows))]:
            cut = draw.randrange(len(line))
            for piece in (line[:cut], line[cut:]):
                file.write(piece)
                file.flush()
                if not by_rename:
                    seen.append(os.fstat(file.fileno()).st_mtime_ns)
                if draw.random() < 0.1:
                    time.sleep(draw.random() * pause)
    if by_rename:
        os.rename(name + ".part", name)
        seen.append(os.stat(name).st_ctime_ns)
print(*seen)
"""
"""Prints the times at which its files have changed, as the system has them, ns since 1970; of a file that is renamed those of its beginning and its end."""


@pytest.mark.feature("D6")
@pytest.mark.parametrize("batch", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 11))])
def test_no_row_is_lost_and_no_end_is_early(tmp_path: Path, batch: int) -> None:
    runs = 20 if batch else 2
    with ThreadPoolExecutor(runs) as pool:
        done = list(pool.map(lambda run: _run(tmp_path / str(run), f"processes {batch} {run}"), range(runs)))
    assert [lost for lost in done if lost] == []


def _run(folder: Path, schedule: str) -> str:
    """Land with the end while four processes write; what was lost or too early."""
    draw, inbox, lake = random.Random(seed_of(schedule)), folder / "inbox", Lake(str(folder / "lake"))
    inbox.mkdir(parents=True)
    writers = [
        subprocess.Popen(
            [
                sys.executable,
                "-S",
                "-c",
                WRITER,
                str(inbox),
                str(n),
                str(draw.randrange(10**6)),
                str(ROWS),
                str(AGE / 10),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    while not any(inbox.iterdir()):
        assert any(writer.poll() is None for writer in writers)
    events, ended, refused = source(inbox, min_age=f"{AGE} seconds"), False, 0
    while not ended:
        try:
            ended = land(no_sail, events, lake, end=True, wait_seconds=draw.choice([0, 0.2, 60])).ended
        except LifecycleError as error:
            assert error.code == "LIFECYCLE-185"  # noqa: PT017 - most of the landings end so
            refused += 1
    changes = [[int(moment) for moment in writer.communicate()[0].split()] for writer in writers]
    rows = (
        DeltaTable(lake.log("events")).to_pyarrow_dataset().to_table(filter=ds.field("_kind") == 0)["key"].to_pylist()
    )
    keys = {f"{1000 * file + row:06d}" for file in range(8) for row in range(ROWS)}
    if len(rows) == len(keys) == len(keys & set(rows)):
        return ""
    together = sorted(moment for moments in changes for moment in moments)
    if max(after - before for moments in (*changes, together) for before, after in pairwise(moments)) > LONGEST:
        # the machine has paused a writer for too long, or all of them before one had begun: what they wrote after that is named
        with pytest.raises(LifecycleError, match="LIFECYCLE-011"):
            land(no_sail, events, lake)
        return ""
    return f"{schedule}: {len(rows)} rows of {len(keys)}, {refused} refused"
