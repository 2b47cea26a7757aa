"""``floodmark serve``: answers about results by key are of one commit, and what is asked wrongly is refused."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import small_lake
from asked import INSTANT, Asked, asked, key, small, totals
from deltalake import DeltaTable, write_deltalake
from processes import paths
from small_lake import row

from floodmark.core.errors import SetupError
from floodmark.lake.folder.paths import Lake
from floodmark.serve import server, tokens
from floodmark.serve.server import serving
from floodmark.serve.service import Service
from floodmark.serve.snapshot import Snapshot
from floodmark.serve.tokens import Tokens, secret_of
from floodmark.spec.values.schema import RETRACTION
from floodmark.spec.values.secret import Env, SecretFile

FIRST_ANSWER = """
import sys
from pathlib import Path
from asked import asked, key, small
from floodmark.lake.folder.paths import Lake
from floodmark.serve.server import put_answers_first

lake, copies = sys.argv[1:]
with asked(small(Path(copies)), Lake(lake), Path(copies), apart=True) as ask:
    ask.until("totals", 1)
    put_answers_first()
    ask.raw("/live")  # the imports of who asks
    there = {*sys.modules}
    status, answer = ask.get("/v1/outputs/totals", key("a"))
    assert status == 200 and answer["rows"], answer
    print(sorted({*sys.modules} - there))
"""
"""A service whose following is in another process, as the verb starts it; prints the modules that its first answer imports."""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two micro-batches: 'a' is 10, 'b' is 2, 'c' was retracted."""
    return small_lake.make(tmp_path / "lake")


@pytest.fixture
def ask(lake: Lake, tmp_path: Path) -> Iterator[Asked]:
    """A service over the lake."""
    with asked(small(tmp_path), lake, tmp_path / "copies") as service:
        service.until("totals", 1)
        yield service


# ---- answers


@pytest.mark.feature("U1")
def test_a_key_is_answered_with_its_last_value_and_the_commit_it_is_of(ask: Asked) -> None:
    status, answer = ask.get("/v1/outputs/totals", key("a"))
    assert (status, totals(answer)) == (200, [("a", 10)])
    as_of = answer["as_of"]
    assert as_of["commit"] == 1
    assert as_of["version"] == small_lake.TOTALS.version
    assert as_of["watermark_ms"] == 60_000
    assert as_of["batch"] == 1


@pytest.mark.feature("U1")
def test_a_key_that_was_retracted_or_never_was_has_no_row(ask: Asked) -> None:
    assert ask.get("/v1/outputs/totals__current", key("c"))[1]["rows"] == []
    assert ask.get("/v1/outputs/totals", key("z"))[1]["rows"] == []


@pytest.mark.feature("U2")
def test_answers_follow_the_commits(ask: Asked, lake: Lake) -> None:
    small_lake.batch(lake, 2, [row("b", 2, 7, RETRACTION), row("d", 4, 8), row("a", 11, 9)])
    ask.until("totals", 2)
    answer = ask.get("/v1/outputs/totals")[1]
    assert totals(answer) == [("a", 11), ("d", 4)]
    assert answer["as_of"]["commit"] == 2
    assert answer["as_of"]["age_seconds"] < 3600


def test_a_time_behind_the_year_9999_is_answered_as_a_text_that_asks_for_it(ask: Asked, lake: Lake) -> None:
    path = lake.output("totals")
    rows = DeltaTable(path).to_pyarrow_table(filters=[("total", "=", 10)])
    end = rows.schema.get_field_index("window_end")
    late = pa.array([253_402_300_800_000_000], rows.schema.field(end).type)
    write_deltalake(path, rows.set_column(end, rows.schema.field(end), late), mode="append")
    ask.until("totals", 2)
    status, content, _ = ask.raw("/v1/outputs/totals/bulk")
    lines = [json.loads(line) for line in content.splitlines()]
    assert (status, len(lines)) == (200, 3)
    (far,) = (one for one in lines if one["window_end"] != INSTANT)
    assert far["window_end"] == "+10000-01-01T00:00:00Z"
    page = ask.get("/v1/outputs/totals")[1]["rows"]
    assert page == lines
    asked_for = [*key(far["key"])[:2], ("key.window_end", far["window_end"])]
    assert ask.get("/v1/outputs/totals", asked_for)[1]["rows"] == [far]


def test_answers_go_back_with_the_table(ask: Asked, lake: Lake) -> None:
    small_lake.batch(lake, 2, [row("a", 11, 7)])
    ask.until("totals", 2)
    DeltaTable(lake.output("totals")).restore(1)
    ask.until("totals", 3)
    assert totals(ask.get("/v1/outputs/totals")[1]) == [("a", 10), ("b", 2)]


def test_a_table_that_is_gone_for_a_while_is_answered_as_it_was(ask: Asked, lake: Lake, tmp_path: Path) -> None:
    Path(lake.output("totals")).rename(tmp_path / "aside")
    time.sleep(0.5)
    assert totals(ask.get("/v1/outputs/totals")[1]) == [("a", 10), ("b", 2)]
    (tmp_path / "aside").rename(lake.output("totals"))


def test_several_keys_are_answered_at_one_commit_in_their_order(ask: Asked) -> None:
    keys = [
        {"key": name, "window_start": "2020-01-01T00:00:00Z", "window_end": "2020-01-01T01:00:00+01:00"}
        for name in "bca"
    ]
    status, answer = ask.lookup("totals", keys)
    assert status == 200
    assert [one and one["total"] for one in answer["rows"]] == [2, None, 10]


def test_pages_are_of_one_commit(ask: Asked, lake: Lake) -> None:
    first = ask.get("/v1/outputs/totals", [("limit", "1")])[1]
    small_lake.batch(lake, 2, [row("b", 3, 7), row("bb", 4, 8)])
    ask.until("totals", 2)
    second = ask.get("/v1/outputs/totals", [("limit", "1"), ("cursor", first["next"])])[1]
    assert totals(first) + totals(second) == [("a", 10), ("b", 2)]
    assert second["next"] is None
    assert {first["as_of"]["commit"], second["as_of"]["commit"]} == {1}


def test_a_range_holds_its_first_value_and_not_its_last(ask: Asked) -> None:
    assert totals(ask.get("/v1/outputs/totals", [("from.key", "a"), ("to.key", "b")])[1]) == [("a", 10)]
    exact = [("key.key", "b"), ("from.window_start", "2020-01-01T00:00:00Z")]
    assert totals(ask.get("/v1/outputs/totals", exact)[1]) == [("b", 2)]


@pytest.mark.parametrize("name", ["ключ", "a&b=c", "null", "", "😀", "x y+z", "%41"])
def test_texts_are_keys_whatever_is_in_them(ask: Asked, lake: Lake, name: str) -> None:
    small_lake.batch(lake, 2, [row(name, 5, 7), row(None, 6, 8)])
    ask.until("totals", 2)
    assert totals(ask.get("/v1/outputs/totals", key(name))[1]) == [(name, 5)]
    assert totals(ask.get("/v1/outputs/totals", key(None))[1]) == [(None, 6)]


# ---- what is asked wrongly


@pytest.mark.parametrize(
    ("path", "parameters", "status", "code", "text"),
    [
        ("/v1/outputs/totls", [], 404, "SERVE-003", "Did you mean 'totals'?"),
        ("/v1/outputs/totals__late", [], 409, "SERVE-004", "rows without one"),
        ("/v1/outputs/totals", [("key.kee", "a")], 400, "SERVE-001", "Did you mean 'key'?"),
        ("/v1/outputs/totals", [("limmit", "1")], 400, "SERVE-001", "Did you mean 'limit'?"),
        ("/v1/outputs/totals", [("key.key", "a"), ("key.window_start", "noon")], 400, "SERVE-002", "an instant"),
        ("/v1/outputs/totals", [("key.key", "a"), ("key.window_start", "2020-01-01T00:00:00")], 400, "SERVE-002", "offset"),
        ("/v1/outputs/totals", [("key.window_end", "2020-01-01T00:00:00Z")], 400, "SERVE-007", "key, window_start"),
        ("/v1/outputs/totals", [("key.key", "a"), ("key.key", "b")], 400, "SERVE-009", "lookup"),
        ("/v1/outputs/totals", [("limit", "100000")], 400, "SERVE-008", "1 to 10000"),
        ("/v1/outputs/totals", [("format", "xml")], 400, "SERVE-008", "arrow"),
        ("/v1/outputs/totals", [("cursor", "nix")], 410, "SERVE-013", "first page"),
        ("/v1/outputs/totals", [("key.key", "x" * 40_000)], 413, "SERVE-010", "lookup"),
        ("/v2", [], 404, "SERVE-014", "See /"),
    ],
)  # fmt: skip
def test_a_question_that_has_no_answer_is_refused_with_what_to_do(
    ask: Asked, path: str, parameters: list[tuple[str, str]], status: int, code: str, text: str
) -> None:
    got, answer = ask.get(path, parameters)
    assert (got, answer["error"]["code"]) == (status, code)
    assert text in " ".join(answer["error"].values())


def test_a_key_of_a_megabyte_is_refused(ask: Asked) -> None:
    status, answer = ask.get("/v1/outputs/totals", [("key.key", "x" * 1_000_000)])
    assert (status, answer["error"]["code"]) == (400, "SERVE-018")
    status, answer = ask.lookup("totals", [{"key": "x" * 1_000_000, "window_start": "", "window_end": ""}])
    assert (status, answer["error"]["code"]) == (413, "SERVE-015")


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"keys": 3}', b'{"keys": [{"key": "a"}]}', b"[" * 100_000, b"\xff"])
def test_a_body_that_names_no_keys_is_refused(ask: Asked, body: bytes) -> None:
    status, content, _ = ask.raw("/v1/outputs/totals/lookup", body)
    assert status == 400
    assert json.loads(content)["error"]["code"] in {"SERVE-007", "SERVE-017"}


def test_an_exception_that_nobody_foresaw_is_written_where_the_service_runs(
    ask: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("of nothing")

    written = list[str]()
    monkeypatch.setattr(Snapshot, "get", broken)
    ask.service.say = written.append
    status, answer = ask.get("/v1/outputs/totals", key("a"))
    assert (status, answer["error"]["got"]) == (500, "ZeroDivisionError")
    assert "of nothing" not in json.dumps(answer)
    (text,) = written
    assert text.startswith("GET /v1/outputs/totals: Traceback")
    assert text.endswith("ZeroDivisionError: of nothing")


def test_an_output_without_a_table_yet_is_not_ready(tmp_path: Path) -> None:
    with asked(small(tmp_path), Lake(str(tmp_path / "lake")), tmp_path / "copies") as ask:
        status, content, headers = ask.raw("/v1/outputs/totals")
    assert (status, json.loads(content)["error"]["code"], headers["Retry-After"]) == (503, "SERVE-011", "1")


# ---- who asks


def test_a_token_is_asked_for_and_may_be_withdrawn_or_expire(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tokens"
    file.write_text("a" * 20 + "\n" + "b" * 20 + " 2020-01-01\n" + "c" * 20 + " 2999-01-01T00:00:00Z\n")
    with asked(small(tmp_path), lake, tmp_path / "copies", [SecretFile(str(file))]) as ask:
        ask.until("totals", 1)
        answers = {token: ask.get("/v1/outputs", token=token) for token in ("", "wrong", "b" * 20)}
        assert {token: (status, answer["error"]["code"]) for token, (status, answer) in answers.items()} == {
            "": (401, "SERVE-005"),
            "wrong": (401, "SERVE-005"),
            "b" * 20: (401, "SERVE-006"),
        }
        assert ask.get("/v1/outputs", token="c" * 20)[0] == 200
        assert [ask.raw(path, token="")[0] for path in ("/", "/openapi.json", "/live")] == [401, 401, 200]
        assert ask.get("/v1/outputs/totals", key("a"), token="a" * 20)[0] == 200
        file.write_text("c" * 20)
        monkeypatch.setattr(tokens, "_READ_SECONDS", 0.0)  # the second is over for which it is known
        assert ask.get("/v1/outputs", token="a" * 20)[0] == 401


def test_a_name_that_another_site_has_made_to_lead_here_is_refused(ask: Asked) -> None:
    host, port = ask.url[7:].split(":")
    answers = []
    for name in ("evil.example.com", f"evil.example.com:{port}", "", f"localhost:{port}", "127.0.0.1"):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(f"GET /v1/outputs HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
            answers.append(client.recv(100).split()[1])
    assert answers == [b"401", b"401", b"401", b"200", b"200"]


def test_beyond_this_machine_a_token_is_needed(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(small(tmp_path), lake, tmp_path / "copies")
    with pytest.raises(SetupError, match="SETUP-140"), serving(service, Tokens([]), "0.0.0.0", 0):  # noqa: S104
        pass
    monkeypatch.setenv("SHORT", "abc")
    with pytest.raises(SetupError, match="SETUP-141"), serving(service, Tokens([Env("SHORT")]), "127.0.0.1", 0):
        pass
    with pytest.raises(SetupError, match="SETUP-142"):
        secret_of("s3cret")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(SetupError, match="SETUP-143"), serving(service, Tokens([]), *other.getsockname()):
            pass


def test_slow_clients_hold_no_thread_and_nobody_up(ask: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_HEAD_SECONDS", 3600.0)  # none of them goes before the answer
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(files, min(most, 4_096)), most))  # both ends are in this process
    slow = [socket.create_connection(tuple(ask.url[7:].split(":"))) for _ in range(1_000)]
    for one in slow:
        one.sendall(b"GET /v1/outputs HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    import threading

    before = threading.active_count()
    assert ask.get("/v1/outputs/totals", key("a"))[0] == 200, "nobody waits for them"
    assert threading.active_count() <= before + 2
    for one in slow:
        one.close()


# ---- a process of its own


def test_what_follows_in_a_process_of_its_own_is_started_again_when_it_is_killed(lake: Lake, tmp_path: Path) -> None:
    import multiprocessing

    others = {*multiprocessing.active_children()}
    with asked(small(tmp_path), lake, tmp_path / "copies", apart=True) as ask:
        ask.until("totals", 1)
        assert totals(ask.get("/v1/outputs/totals")[1]) == [("a", 10), ("b", 2)]
        (child,) = {*multiprocessing.active_children()} - others
        child.kill()
        child.join()
        assert totals(ask.get("/v1/outputs/totals")[1]) == [("a", 10), ("b", 2)], "as it was"
        small_lake.batch(lake, 2, [row("d", 4, 8)])
        ask.until("totals", 2)
        assert totals(ask.get("/v1/outputs/totals")[1]) == [("a", 10), ("b", 2), ("d", 4)]
    assert {*multiprocessing.active_children()} <= others


def test_no_answer_waits_for_an_import(lake: Lake, tmp_path: Path) -> None:
    folders = [lake.root, str(tmp_path / "copies")]
    done = subprocess.run(
        [sys.executable, "-c", FIRST_ANSWER, *folders],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths()},
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stdout + done.stderr
