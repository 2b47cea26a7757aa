"""A disk that is full while a stream writes its state: the stream stops and says so; started again, it has every row once."""

from __future__ import annotations

import errno
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from events import disorder
from streams import STREAMS, check

from floodmark.core.errors import SetupError
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.state import segment
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.testing.lakes import land

COMMITS = 8


@pytest.mark.parametrize("name", ["windowed", "watched"])
def test_a_disk_that_is_full_stops_the_stream_and_nothing_is_lost_or_there_twice(
    sail: Sail, lake: Lake, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    code = STREAMS[name]
    log = disorder(code, 7, 200)
    cuts = [len(log.entries) * n // COMMITS for n in range(COMMITS + 1)]
    for first, last in pairwise(cuts):
        land(lake, code, log, first, last)
    write, left = segment.write, 0

    def full(root: str, file: str, *written: Any) -> segment.Segment:
        nonlocal left
        if left:
            left -= 1
            return write(root, file, *written)
        draft = Path(root, f"{file}.draft")
        draft.write_bytes(b"half of")
        raise OSError(errno.ENOSPC, "No space left on device", str(draft))

    monkeypatch.setattr(segment, "write", full)
    for written in (0, 1, 2, 2):
        left = written
        with pytest.raises(SetupError, match=rf"SETUP-052 .*\.draft.*floodmark run {name} --unbounded"):
            run_unbounded(sail, code, lake, until_caught_up=True, files_per_batch=1)
    monkeypatch.setattr(segment, "write", write)
    run_unbounded(sail, code, lake, until_caught_up=True, files_per_batch=1)
    check(lake, code, log)
