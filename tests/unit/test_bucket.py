"""Files of a bucket: created by one writer only, also where an answer is lost, late, or another one's."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from s3_server import Fault, Plan, Proxy

from floodmark.lake.folder import bucket, copies, storage
from floodmark.lake.folder.bucket import StoreError

if TYPE_CHECKING:
    from s3_server import Server


@pytest.mark.parametrize("fault", ["503", "409", "slow", "lost"])
def test_a_file_is_created_once_whatever_is_answered(s3: Server, s3_proxy: Proxy, fault: Fault) -> None:
    file = f"{s3.bucket()}/folder/file"
    s3_proxy.plan(Plan(fault=fault, method="PUT", times=2))
    assert bucket.create(file, b"mine")
    assert s3_proxy.faults()[fault] in {1, 2}
    s3_proxy.plan(Plan(fault=fault, method="PUT", times=1))
    assert not bucket.create(file, b"another one's")
    assert bucket.read(file) == b"mine"


@pytest.mark.parametrize("fault", ["503", "lost"])
def test_a_file_is_swapped_only_from_the_content_that_was_read(s3: Server, s3_proxy: Proxy, fault: Fault) -> None:
    file = f"{s3.bucket()}/fence"
    assert bucket.swap(file, b"first", None)
    assert not bucket.swap(file, b"late", None)
    content, tag = bucket.tagged(file) or (b"", "")
    s3_proxy.plan(Plan(fault=fault, method="PUT", times=1))
    assert content == b"first" and bucket.swap(file, b"second", tag)
    assert not bucket.swap(file, b"third", tag)
    assert bucket.read(file) == b"second"


@pytest.mark.parametrize("seed", range(3))
def test_of_many_writers_of_one_file_exactly_one_creates_it(s3: Server, s3_proxy: Proxy, seed: int) -> None:
    s3_proxy.plan(Plan(seed=seed, share=0.4))
    file, won = f"{s3.bucket()}/log/0.json", list[int]()

    def write(number: int) -> None:
        if bucket.create(file, b"%d" % number):
            won.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    s3_proxy.plan()
    assert [b"%d" % number for number in won] == [bucket.read(file)]


def test_folders_and_copies(s3: Server, s3_proxy: Proxy) -> None:
    root = s3.bucket()
    for name in ("a", "b/c", "b/.hidden", "b/d.draft"):
        storage.write(f"{root}/lake/{name}", name.encode())
    assert storage.files(f"{root}/lake") == ["a"] and storage.folders(f"{root}/lake") == ["b"]
    assert sorted(copies.files_of(f"{root}/lake")) == ["a", "b/c"]
    copies.copy(f"{root}/lake/b/c", f"{root}/other/c")
    assert storage.read(f"{root}/other/c") == b"b/c"
    copies.remove(f"{root}/lake/b")
    assert storage.folders(f"{root}/lake") == [] and storage.read(f"{root}/lake/b/c") is None
    with pytest.raises(FileNotFoundError):
        copies.copy(f"{root}/lake/b/c", f"{root}/other/d")


def test_arrow_reads_and_writes_through_the_same_client(
    s3: Server, s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, path = storage.file_system(f"{s3.bucket()}/lake/t.parquet")
    rows = pa.table({"n": range(100_000)})
    pq.write_table(rows, path, filesystem=files, row_group_size=20_000)
    assert pq.read_table(path, filesystem=files) == rows
    monkeypatch.setattr(bucket, "FRONT", 1_000)
    with files.open_input_file(path) as opened:
        assert pq.ParquetFile(opened).read_row_group(3) == rows.slice(60_000, 20_000)


def test_what_a_store_refuses_is_told_from_a_file_that_is_not_there(s3: Server, s3_proxy: Proxy) -> None:
    root = s3.bucket()
    assert bucket.read(f"{root}/none") is None
    with pytest.raises(StoreError, match="NoSuchBucket"):
        bucket.read("s3://no-such-bucket/file")
    s3_proxy.plan(Plan(fault="refused"))
    with pytest.raises(PermissionError, match="ExpiredToken"):
        bucket.read(f"{root}/none")
