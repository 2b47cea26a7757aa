"""The store of the warm-up answers requests of S3 as a bucket does, for what Hadoop and Amazon's client ask."""

from __future__ import annotations

import http.client
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

import pytest

from floodmark.engines.spark.session import warm_store, warmup

Answer = tuple[int, bytes, Mapping[str, str]]


class Client:
    """Requests to a store."""

    def __init__(self, endpoint: str) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(endpoint).netloc)

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = MappingProxyType({})
    ) -> Answer:
        """(status, content, headers) of an answer."""
        self.connection.request(method, f"/{warm_store.BUCKET}{path}", body, dict(headers))
        answer = self.connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())


@pytest.fixture
def client() -> Iterator[Client]:
    """Of a running store."""
    with warm_store.running() as settings:
        opened = Client(settings["spark.hadoop.fs.s3a.endpoint"])
        yield opened
        opened.connection.close()


def test_an_object_is_there_once_it_was_put_and_until_it_is_removed(client: Client) -> None:
    assert client.ask("HEAD", "/lake/a")[0] == 404
    assert client.ask("PUT", "/lake/a", b"0123456789")[0] == 200
    status, content, headers = client.ask("HEAD", "/lake/a")
    assert (status, content, headers["Content-Length"]) == (200, b"", "10")
    assert client.ask("GET", "/lake/a")[:2] == (200, b"0123456789")
    assert client.ask("DELETE", "/lake/a")[0] == 204
    assert client.ask("GET", "/lake/a")[0] == 404


def test_a_part_of_an_object_is_read(client: Client) -> None:
    client.ask("PUT", "/a", b"0123456789")
    status, content, headers = client.ask("GET", "/a", headers={"Range": "bytes=2-4"})
    assert (status, content, headers["Content-Range"]) == (206, b"234", "bytes 2-4/10")
    assert client.ask("GET", "/a", headers={"Range": "bytes=8-20"})[1] == b"89"


def test_a_body_in_signed_chunks_is_put_together(client: Client) -> None:
    chunks = b"5;chunk-signature=00\r\nhello\r\n6;chunk-signature=01\r\n world\r\n0;chunk-signature=02\r\n\r\n"
    client.ask("PUT", "/a", chunks, {"x-amz-decoded-content-length": "11"})
    assert client.ask("GET", "/a")[1] == b"hello world"


def test_a_copy_has_the_content_of_its_source(client: Client) -> None:
    client.ask("PUT", "/a%20b", b"content")
    status, content, _ = client.ask("PUT", "/c", headers={"x-amz-copy-source": f"{warm_store.BUCKET}/a%20b"})
    assert status == 200
    assert content.startswith(b"<CopyObjectResult>")
    assert client.ask("GET", "/c")[1] == b"content"


def test_names_are_listed_below_a_prefix_and_folders_once(client: Client) -> None:
    for name in ("lake/a", "lake/b/1", "lake/b/2", "other"):
        client.ask("PUT", f"/{name}", b"x")
    listed = client.ask("GET", "?list-type=2&prefix=lake%2F&delimiter=%2F")[1].decode()
    assert listed.count("<Contents>") == listed.count("<CommonPrefixes>") == 1
    assert "<Key>lake/a</Key>" in listed
    assert "<Prefix>lake/b/</Prefix>" in listed
    assert client.ask("GET", "?list-type=2&prefix=lake%2F")[1].count(b"<Contents>") == 3
    assert client.ask("GET", "?list-type=2&prefix=&start-after=lake%2Fb%2F2")[1].count(b"<Contents>") == 1


def test_the_objects_that_a_request_names_are_removed(client: Client) -> None:
    for name in "abc":
        client.ask("PUT", f"/{name}", b"x")
    client.ask("POST", "?delete", b"<Delete><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>")
    assert client.ask("GET", "?list-type=2&prefix=")[1].count(b"<Contents>") == 1


def test_the_warm_up_knows_no_store_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hadoop's configuration may name another way to credentials, or another file system for the folder in which the warm-up works."""
    seen = dict[str, str]()
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "AWS_PROFILE", "https_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "of the user")
    monkeypatch.setattr(warmup.os, "nice", lambda _: 0)
    monkeypatch.setattr(warmup.sys, "argv", ["warmup"])
    monkeypatch.setattr(warmup, "build", lambda: seen.update(os.environ))
    warmup.main()
    assert seen
    assert "of the user" not in seen.values()


@pytest.fixture
def warmed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Folders in which the warm-up was tried, and the end of its session; there are jars for buckets."""
    done = list[str]()
    monkeypatch.setattr(warmup, "of_buckets", lambda: [tmp_path])
    monkeypatch.setattr(warmup, "spark_session", lambda **_: None)
    monkeypatch.setattr(warmup, "stop_session", lambda *_, **__: done.append("stopped"))
    return done


def test_where_the_store_is_not_reached_the_archive_has_the_other_classes(
    warmed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def warm_up(_: object, folder: str) -> None:
        warmed.append(folder)
        if folder.startswith("s3:"):
            raise OSError("a proxy that Java knows")

    monkeypatch.setattr(warmup, "warm_up", warm_up)
    warmup._session(tmp_path / "classes.jsa", tmp_path)
    assert warmed == [f"{tmp_path}/1", *(f"s3://warm-up/lake/{number}" for number in (1, 2, 3)), "stopped"]
    assert "a proxy that Java knows" in capsys.readouterr().err


def test_a_worker_that_starts_too_slowly_costs_another_try(
    warmed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warm_up(_: object, folder: str) -> None:
        warmed.append(folder)
        if folder.endswith("/1"):
            raise OSError("Python worker failed to connect back")

    monkeypatch.setattr(warmup, "warm_up", warm_up)
    warmup._session(tmp_path / "classes.jsa", tmp_path)
    folders = (str(tmp_path), "s3://warm-up/lake")
    assert warmed == [*(f"{folder}/{number}" for folder in folders for number in (1, 2)), "stopped"]
