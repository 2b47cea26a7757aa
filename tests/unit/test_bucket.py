"""Files of a bucket: created by one writer only, also where an answer is lost, late, or another one's."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from s3_server import Fault, Plan, Proxy
from small_fleet import fleet_of

from floodmark import Env, SecretFile, Settings, Store
from floodmark.core import machine
from floodmark.core.errors import CapabilityError, ConnectorError, DefinitionError, LifecycleError, SetupError
from floodmark.core.patience import patient
from floodmark.engines.spark.session import store
from floodmark.engines.spark.setup import jars
from floodmark.lake.folder import bucket, copies, credentials, storage
from floodmark.lake.folder.bucket import StoreError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream import plans
from floodmark.lake.stream.timeline import Timeline

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
def test_of_many_writers_of_one_file_exactly_one_creates_it(
    s3: Server, s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(bucket, "_TRIES", 60)  # of eight all fail for one writer in ten thousand
    s3_proxy.plan(Plan(seed=seed, share=0.4))
    file, won = f"{s3.bucket()}/log/0.json", list[int]()

    def write(number: int) -> None:
        if bucket.create(file, b"%d" % number):
            won.append(number)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
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


def test_what_hadoop_puts_for_a_folder_is_no_file(s3: Server, s3_proxy: Proxy) -> None:
    root = s3.bucket()
    storage.write(f"{root}/lake/a/b/c", b"c")
    storage.write(f"{root}/lake/empty", b"")
    for name in ("lake", "lake/a", "lake/a/b", "lake/a/left"):
        s3.make_folder(f"{root}/{name}")
    assert sorted(copies.files_of(f"{root}/lake")) == ["a/b/c", "empty"]
    assert storage.files(f"{root}/lake") == ["empty"] and storage.folders(f"{root}/lake/a") == ["b", "left"]
    copies.remove(f"{root}/lake/a")
    assert storage.read(f"{root}/lake/a/b/c") is None
    assert copies.size_of(f"{root}/lake/a") is None, "folders that are left are no files"


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


def test_a_secret_in_a_file_is_read_again_once_the_store_refuses_it(
    s3: Server, s3_proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request waits until the file is renewed, and goes through."""
    (tmp_path / "key").write_text("old")
    monkeypatch.setenv("FLOODMARK_STORE_FILES", "")
    credentials.reach(Store(access_key=SecretFile(str(tmp_path / "key"))))
    file, told = f"{s3.bucket()}/file", list[str]()
    s3_proxy.plan(Plan(fault="refused", key="new"))
    with pytest.raises(PermissionError, match="ExpiredToken"):
        bucket.write(file, b"1")

    def wait(message: str, _: float) -> bool:
        told.append(message)
        (tmp_path / "key").write_text("new" if len(told) == 2 else "old")
        return True

    with patient(wait):
        bucket.write(file, b"2")
    assert len(told) == 2 and "ExpiredToken" in told[0]
    assert bucket.read(file) == b"2"


@pytest.mark.parametrize("fault", ["unconditional", "501"])
def test_a_store_without_conditional_writes_is_refused_when_it_is_opened(
    s3: Server, s3_proxy: Proxy, fault: Fault
) -> None:
    root = f"{s3.bucket()}/lake"
    s3_proxy.plan(Plan(fault=fault, method="PUT"))
    with pytest.raises(ConnectorError, match=r"CONNECTOR-216 .*a store with conditional writes"):
        Lake.of(Settings(lake=root))
    s3_proxy.plan()
    assert not list(bucket.below(root))
    Lake.of(Settings(lake=root))
    s3_proxy.plan(Plan(fault="501", method="PUT"))
    Lake.of(Settings(lake=root))  # it is looked once


def test_a_secret_is_a_reference_and_is_shown_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_REGION", "FLOODMARK_STORE_FILES"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("LAKE_SECRET", "hush-hush")
    settings = Settings(store=Store(secret_key=Env("LAKE_SECRET"), region="eu-central-1"))
    Lake.of(replace(settings, lake=str(tmp_path)))
    assert (os.environ["AWS_SECRET_ACCESS_KEY"], os.environ["AWS_REGION"]) == ("hush-hush", "eu-central-1")
    assert "hush" not in repr(settings) + json.dumps(asdict(settings))
    with pytest.raises(DefinitionError, match=r"DEFINITION-298 Store\(secret_key=...\)") as raised:
        Store(secret_key="hush-hush")  # type: ignore[arg-type]  # noqa: S106 - refused
    assert "hush" not in str(raised.value)
    with pytest.raises(DefinitionError, match=r"DEFINITION-298 Store\(endpoint=...\)"):
        Store(endpoint="s3.example.com")
    with pytest.raises(DefinitionError, match="DEFINITION-298 SecretFile"):
        SecretFile("hush-hush")
    with pytest.raises(ConnectorError, match="CONNECTOR-215 variable NONE_OF_THEM"):
        Lake.of(Settings(lake=str(tmp_path), store=Store(access_key=Env("NONE_OF_THEM"))))


def test_what_a_supervisor_starts_reaches_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upkeep, drivers and looks at rollouts inherit the variables."""
    for name in ("AWS_SECRET_ACCESS_KEY", "FLOODMARK_STORE_FILES"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("LAKE_SECRET", "hush-hush")
    fleet_of(tmp_path, store=Store(secret_key=Env("LAKE_SECRET")))
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == os.environ["LAKE_SECRET"]


@pytest.mark.parametrize(
    ("fault", "fix"), [("region", "Set AWS_REGION"), ("refused", "Renew the credentials"), (None, "Make the bucket")]
)
def test_what_is_wrong_with_a_store_is_said_with_what_mends_it(
    s3: Server, s3_proxy: Proxy, fault: Fault | None, fix: str
) -> None:
    root = "s3://no-such-bucket/lake" if fault is None else f"{s3.bucket()}/lake"
    s3_proxy.plan(Plan(fault=fault))
    with pytest.raises(OSError, match=root) as raised:
        bucket.write(f"{root}/file", b"")
    refusal = machine.refused(raised.value, "landing")
    assert refusal is not None and refusal.code == "SETUP-057" and refusal.fix.startswith(fix)


def test_spark_needs_jars_for_a_bucket_and_says_how_they_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOODMARK_CACHE", str(tmp_path))
    jars.check_bucket("/lake")
    with pytest.raises(
        SetupError, match=r"SETUP-090 lake s3://bucket/lake: .*floodmark\.engines\.spark\.setup\.jars --buckets"
    ):
        jars.check_bucket("s3://bucket/lake")
    with pytest.raises(CapabilityError, match=r"CAPABILITY-046 lake gs://bucket/lake: .*--engine embedded"):
        jars.check_bucket("gs://bucket/lake")
    for path in jars.S3.paths:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    jars.check_bucket("s3a://bucket/lake")


def test_the_settings_of_spark_have_no_secret() -> None:
    variables = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "hush-id",
        "AWS_SECRET_ACCESS_KEY": "hush-key",
        "AWS_SESSION_TOKEN": "hush-token",
    }
    chosen = store.settings(variables)
    assert chosen["fs.s3a.endpoint"] == "http://127.0.0.1:9" and chosen["fs.s3a.endpoint.region"] == "eu-central-1"
    assert "hush" not in json.dumps([chosen, store.of_executors(variables)])
    assert store.of_executors(variables)["AWS_REGION"] == "eu-central-1"


def test_where_the_checkpoint_of_a_running_stream_lies_is_known_without_a_request(s3: Server, s3_proxy: Proxy) -> None:
    begun = Timeline(Lake(s3.bucket()), "sums", engine="spark")
    s3_proxy.plan()
    assert begun.checkpoint.path.endswith("operators/sums/timelines/0/checkpoint")
    assert not s3_proxy.requests()
    storage.write(f"{begun.folder('checkpoint')}/commits/0", b"0")
    following = begun.next()
    assert following.number == 1 and following.engine is None


def test_the_plan_of_a_micro_batch_is_that_of_one_process(s3: Server, s3_proxy: Proxy) -> None:
    """A driver that repeats a micro-batch goes on; one that has planned another ends, and the next start is given the plan that counts."""
    checkpoint = f"{s3.bucket()}/checkpoint"
    storage.write(f"{checkpoint}/offsets/0", b"v1 one")
    s3_proxy.plan(Plan(fault="lost", method="PUT", times=1))
    plans.agree(checkpoint, 0)
    plans.agree(checkpoint, 0)
    storage.write(f"{checkpoint}/offsets/0", b"v1 other")
    with pytest.raises(LifecycleError, match="LIFECYCLE-220"):
        plans.agree(checkpoint, 0)
    plans.resume(checkpoint)
    assert storage.read(f"{checkpoint}/offsets/0") == b"v1 one"
    plans.change(checkpoint, 0, "v1 moved")
    plans.resume(checkpoint)
    assert storage.read(f"{checkpoint}/offsets/0") == b"v1 moved"
    plans.agree(checkpoint, 0)
