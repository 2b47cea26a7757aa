"""``floodmark serve``: the state of a process function by key is a dictionary's, as of the last commit and as of savepoints."""

from __future__ import annotations

import gc
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from asked import asked
from remembered import SOURCE, Number, Rows, assert_equal, landed, remembered, rows_of, service

import floodmark as fm
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.table import entries
from floodmark.serve import following

if TYPE_CHECKING:
    from s3_server import Proxy, Server


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Empty."""
    return Lake(str(tmp_path / "lake"))


@pytest.fixture
def bucket(s3: Server, s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Empty, in a bucket that is looked at with every question."""
    monkeypatch.setattr(following, "_LOOK_BUCKET_SECONDS", 0.0)
    return Lake(f"{s3.bucket()}/lake")


def ran(sail: Sail, lake: Lake, rows: Rows, begin: int = 0) -> None:
    """Rows land, and are computed."""
    landed(lake, rows, begin)
    run_unbounded(sail, remembered, lake, until_caught_up=True)


@pytest.mark.feature("U1")
@pytest.mark.parametrize("where", ["lake", "bucket"])
def test_state_by_key_is_that_of_the_last_commit_or_of_a_savepoint(
    sail: Sail, where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rows, lake = rows_of(300, 40), request.getfixturevalue(where)
    ran(sail, lake, rows[:200])
    with service(lake, tmp_path) as ask:
        assert_equal(ask, rows[:200])
        saved = savepoints.create("remembered", lake)
        ran(sail, lake, rows, 200)
        assert_equal(ask, rows)
        assert_equal(ask, rows[:200], saved.id)
        status, answer = ask.get("/v1/state/remembered", [("key.key", "nobody")])
        assert (status, answer["rows"]) == (200, [])
        assert answer["as_of"]["version"] == remembered.version
        first = ask.get("/v1/state/remembered", [("limit", "3"), ("from.key", "k1")])[1]
        second = ask.get("/v1/state/remembered", [("limit", "3"), ("from.key", "k1"), ("cursor", first["next"])])[1]
        assert [row["key"] for row in first["rows"] + second["rows"]] == ["k1", "k10", "k11", "k12", "k13", "k14"]
        remove(saved.path)
        status, answer = ask.get("/v1/state/remembered", [("as_of", saved.id)])
        assert (status, answer["error"]["code"]) == (404, "SERVE-025")


@pytest.mark.feature("U1")
def test_state_in_a_bucket_is_fetched_once_and_its_copies_go(
    sail: Sail, bucket: Lake, tmp_path: Path, s3_proxy: Proxy
) -> None:
    rows, fetched = rows_of(400, 40), Counter[str]()
    with service(bucket, tmp_path) as ask:
        for count in range(100, 401, 100):
            ran(sail, bucket, rows[:count], count - 100)
            s3_proxy.plan()
            assert_equal(ask, rows[:count])
            gets = [path for method, path, _ in s3_proxy.requests() if method == "GET" and "/batches/" in path]
            fetched.update(gets)
        assert len(fetched) >= 4
        assert max(fetched.values()) <= 2, "the head of a micro-batch's file, then the file"
        gc.collect()
        assert len([*(tmp_path / "copies" / "states").iterdir()]) == 1


@fm.operator
def tens(numbers: fm.Stream[Number]) -> fm.Stream:
    """Sums of ten seconds, which later rows revise."""
    return (
        numbers.key_by("key")
        .window(fm.Tumbling("10 seconds"), allowed_lateness="1 hour")
        .aggregate(sum=fm.sum("value"))
    )


@pytest.mark.feature("U2")
def test_results_in_a_bucket_are_those_of_the_last_commit_or_of_a_savepoint(
    sail: Sail, bucket: Lake, tmp_path: Path
) -> None:
    rows, counts = rows_of(300, 5), dict[str, int]()
    workspace = fm.Workspace(
        sources=[SOURCE], operators=[tens], settings=fm.Settings(lake=bucket.root, engine="embedded")
    )
    with asked(workspace, bucket, tmp_path / "copies", apart=True) as ask:
        for count in (150, 300):
            landed(bucket, rows[:count], count - 150)
            run_unbounded(sail, tens, bucket, until_caught_up=True)
            ask.until("tens", entries.newest(bucket.output("tens")))
            counts[savepoints.create("tens", bucket).id] = count
        for saved, count in [*counts.items(), ("", 300)]:
            status, answer = ask.get("/v1/outputs/tens", [("as_of", saved)] if saved else [])
            assert status == 200, answer
            wanted = Counter[tuple[int, str | None]]()
            for time, key, value in rows[:count]:
                if time // 10_000 * 10_000 + 10_000 <= rows[count - 1][0]:
                    wanted[time // 10_000, key] += value
            got = {
                (int(datetime.fromisoformat(row["window_start"]).timestamp()) // 10, row["key"]): row["sum"]
                for row in answer["rows"]
            }
            assert got == dict(wanted)


def test_state_that_cannot_be_asked_is_refused(lake: Lake, tmp_path: Path) -> None:
    with service(lake, tmp_path) as ask:
        status, answer = ask.get("/v1/state/remembred")
        assert (status, answer["error"]["code"]) == (404, "SERVE-020")
        assert "Did you mean 'remembered'?" in answer["error"]["fix"]
        status, answer = ask.get("/v1/state/remembered", [("key.key", "a")])
        assert (status, answer["error"]["code"]) == (503, "SERVE-022")
        status, answer = ask.get("/v1/outputs/remembered")
        assert (status, answer["error"]["code"]) == (409, "SERVE-004")
