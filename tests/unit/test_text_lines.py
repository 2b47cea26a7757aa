"""Lines of text become rows by a pattern or as logfmt; a line that is another one is set aside as it is."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored import rows

from floodmark import Ascending, Contract, EventTime, Files, Rescued, Source, TimeFormat
from floodmark.connectors.formats.text import fields_of
from floodmark.core.errors import ConnectorError, DefinitionError
from floodmark.engines.embedded.landing.run import land, replay
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.landing import quarantine
from floodmark.lake.folder.paths import Lake

PATTERN = r"(?P<at>\S+) (?P<level>[A-Z]+)(?: \[(?P<worker>\d+)\])? (?P<message>.*)"


class Entry(Contract):
    at: EventTime
    level: str
    worker: int | None = None
    message: str | None = None


class Request(Contract):
    at: Annotated[EventTime, TimeFormat("%d/%b/%Y:%H:%M:%S %z")]
    host: str
    user: str
    method: str | None = None
    path: str | None = None
    request: str | None = None
    status: int
    bytes: int | None = None
    referer: str | None = None


class Pairs(Contract):
    at: EventTime
    n: int | None = None
    others: Rescued


def no_sail() -> Sail:
    raise AssertionError("no server is needed")


def source(folder: Path, contract: type[Contract] = Entry, share: float = 0.9, **settings: Any) -> Source:
    settings = {"format": "text", "pattern": PATTERN, **settings}
    return Source(
        "entries",
        contract=contract,
        connector=Files(str(folder), **settings),
        watermark=Ascending(),
        max_quarantine_share=share,
    )


def landed(lake: Lake) -> list[Any]:
    return [row for row in rows(lake.log("entries"), "_sequence") if row._kind == 0]


def folder_of(tmp_path: Path, name: str, *lines: str) -> Path:
    (tmp_path / "in").mkdir(exist_ok=True)
    text = "".join(f"{line}\n" for line in lines).encode()
    (tmp_path / "in" / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return tmp_path / "in"


def test_groups_are_fields_and_other_lines_are_set_aside_with_their_text(lake: Lake, tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path,
        "app.log.gz",
        "\ufeff2024-01-01T00:00:00Z INFO [007] started",
        "",
        "  at a line of a stack",
        "2024-01-01T00:00:01Z WARN ",
        "2024-01-01T00:00:02Z INFO [x] no number",
        "soon INFO x",
    )
    result = land(no_sail, source(folder), lake)
    assert (result.rows, result.quarantined) == (3, 2)
    assert [(row.level, row.worker, row.message) for row in landed(lake)] == [
        ("INFO", 7, "started"),
        ("WARN", None, None),
        ("INFO", None, "[x] no number"),
    ]
    entries = {entry.position: (entry.raw, entry.reason) for entry in quarantine.show("entries", lake).newest}
    assert entries[3] == ("  at a line of a stack", "expected a line that matches the pattern, got another one")
    assert entries[6][0] == "soon INFO x"


def test_a_line_is_read_again_as_it_was(lake: Lake, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "a.log", "2024-01-01T00:00:00Z INFO [1] x", "2024-01-01T00:00:01Z INFO [-] y")

    class Narrow(Entry):
        message: str
        worker: int  # type: ignore[assignment]  # narrower than its base

    pattern = PATTERN.replace(r"\d+", r"\d+|-")
    land(no_sail, source(folder, Narrow, pattern=pattern, missing_values=("-",)), lake)
    assert quarantine.show("entries", lake).rows == 1
    assert replay(no_sail, source(folder, pattern=pattern), lake).landed == 1
    assert [row.worker for row in landed(lake)] == [1, None]


@pytest.mark.parametrize("settings", [{}, {"format": "logfmt", "pattern": None}])
def test_a_pattern_that_matches_no_line_is_refused(lake: Lake, tmp_path: Path, settings: dict[str, Any]) -> None:
    folder = folder_of(tmp_path, "a.log", "one", "two")
    with pytest.raises(ConnectorError, match="CONNECTOR-202") as caught:
        land(no_sail, source(folder, **settings), lake)
    assert "2 lines, none of which does: row 1: " in str(caught.value)
    assert land(no_sail, source(folder, share=1, **settings), lake).quarantined == 2


def test_a_field_without_a_group_is_refused(lake: Lake, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "a.log", "2024-01-01T00:00:00Z INFO x")
    with pytest.raises(
        ConnectorError, match=r"CONNECTOR-201 .*expected a group 'level' in the pattern, got groups at, leve\."
    ):
        land(no_sail, source(folder, pattern=r"(?P<at>\S+) (?P<leve>\w+) .*"), lake)


@pytest.mark.parametrize(
    "settings",
    [
        {"format": "text"},
        {"pattern": "(?P<a>x)"},
        {"format": "csv", "pattern": "(?P<a>x)"},
        {"format": "text", "pattern": "(?P<a>x"},
        {"format": "text", "pattern": "no group"},
        {"format": "text", "pattern": "combind"},
    ],
)
def test_a_pattern_has_named_groups_and_is_for_text(settings: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-201"):
        Files("inbox", **settings)


COMMON = r'1.2.3.4 - {user} [10/Oct/2000:13:55:36 -0700] "{request}" {status} {size}'
REQUESTS = ["GET /a?b=c%20d HTTP/1.1", "POST /x", r"\x16\x03\x01", "-", "", r"GET /\"q\" HTTP/1.0", "get lower"]


@pytest.mark.parametrize(
    ("pattern", "ahead", "more"),
    [
        ("common", "", ""),
        ("combined", "", r' "-" "Mozilla/5.0 (X11) \"odd\""'),
        ("combined and more", "", ' "http://a/" "" "10.0.0.1" 0.005'),
        ("virtual hosts", "example.org:80 ", ' "-" "-"'),
    ],
)
def test_logs_of_web_servers(lake: Lake, tmp_path: Path, pattern: str, ahead: str, more: str) -> None:
    lines = [
        ahead + COMMON.format(user=user, request=request, status=200 + n, size=size) + more
        for n, (user, request, size) in enumerate(
            [("-", REQUESTS[0], 5), ("frank", REQUESTS[1], "-"), *[("a b", request, 0) for request in REQUESTS[2:]]]
        )
    ]
    folder = folder_of(tmp_path, "access.log", *lines)
    result = land(no_sail, source(folder, Request, pattern=pattern, missing_values=("-",)), lake)
    assert (result.rows, result.quarantined) == (len(lines), 0)
    stored = landed(lake)
    assert [row.status for row in stored] == [200 + n for n in range(len(lines))]
    assert (stored[0].method, stored[0].path, stored[0].bytes, stored[0].user) == ("GET", "/a?b=c%20d", 5, "-")
    assert (stored[1].bytes, stored[1].user, stored[2].request, stored[2].user) == (None, "frank", REQUESTS[2], "a b")


def test_logfmt_and_the_keys_nobody_named(lake: Lake, tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path,
        "a.log",
        r'at=2024-01-01T00:00:00Z n=7 msg="say \"hi\"\n" quick',
        "at=2024-01-01T00:00:01Z n= msg=",
        "at=2024-01-01T00:00:02Z n=1 n=2",
        "at=2024-01-01T00:00:03Z words between",
        'at=2024-01-01T00:00:03Z open="',
        "no pairs",
    )
    result = land(no_sail, source(folder, Pairs, format="logfmt", pattern=None), lake)
    assert (result.rows, result.quarantined) == (3, 3)
    first, second, third = landed(lake)
    assert (first.n, json.loads(first.others)) == (7, {"msg": 'say "hi"\n', "quick": "true"})
    assert (second.n, json.loads(second.others)) == (None, {"msg": None})
    assert json.loads(third.others) == {"words": "true", "between": "true"}


keys = st.text("abcdefghijklmnop_.-0123456789", min_size=1, max_size=8)


@given(st.dictionaries(keys, st.text(max_size=20), min_size=1, max_size=6), st.booleans())
def test_what_logfmt_quotes_is_what_it_was(pairs: dict[str, str], everywhere: bool) -> None:
    plain = {key: value for key, value in pairs.items() if value.isalnum() and not everywhere}
    line = " ".join(f"{key}={value if key in plain else json.dumps(value)}" for key, value in pairs.items())
    assert fields_of(None)(line) == pairs
