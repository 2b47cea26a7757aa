"""Messages of topics as records: what a tombstone deletes."""

from __future__ import annotations

import base64
import json

import pytest
from pydantic import Field

import floodmark as fm
from floodmark.connectors.messages.records import Messages, Stored


class Named(fm.Contract, key="id"):
    """A row whose key is a text."""

    id: str
    at: fm.EventTime = Field(alias="_timestamp")
    gone: bool = Field(alias="_deleted")


class Numbered(fm.Contract, key="id"):
    """A row whose key is a number."""

    id: int
    at: fm.EventTime = Field(alias="_timestamp")
    gone: bool = Field(alias="_deleted")


def tombstone(contract: type[fm.Contract], key: bytes) -> object:
    """The key of the row that a tombstone deletes."""
    parts = {"topic": "t", "partition": 0, "offset": 5, "timestamp": [1, 7], "value": None, "headers": []}
    message = Stored(parts | {"key": base64.b64encode(key).decode()})
    (value,) = (one.value for one in Messages(fm.Kafka("t", "b:1"), contract, "here", "s").records(message))
    assert isinstance(value, bytes)
    return json.loads(value)["id"]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"42", "42"),
        (b"1e3", "1e3"),
        (b"true", "true"),
        (b"null", "null"),
        (b"NaN", "NaN"),
        (b"007", "007"),
        (b"[1]", "[1]"),
        (b'"42"', "42"),
        (b'{"id": "42"}', "42"),
        (b"[" * 100_000, "[" * 100_000),
        ("ключ".encode(), "ключ"),
    ],
)
def test_a_key_that_is_a_text_is_that_text_whatever_it_looks_like(key: bytes, text: str) -> None:
    assert tombstone(Named, key) == text


class Keyed(fm.Contract):
    """A row with the key of its message."""

    at: fm.EventTime = Field(alias="_timestamp")
    key: str = Field(alias="_key")


def test_keys_that_are_no_text_stay_apart() -> None:
    assert (tombstone(Named, b"\xff"), tombstone(Named, b"\xfe")) == ("\\xff", "\\xfe")
    keys = set[str]()
    for key in (b"\xff", b"\xfe", "ключ".encode()):
        parts = {"topic": "t", "partition": 0, "offset": 5, "timestamp": [1, 7], "headers": []}
        coded = {"key": base64.b64encode(key).decode(), "value": base64.b64encode(b"{}").decode()}
        (row,) = Messages(fm.Kafka("t", "b:1"), Keyed, "here", "s").records(Stored(parts | coded))
        assert isinstance(row.value, bytes)
        keys.add(json.loads(row.value)["_key"])
    assert keys == {"\\xff", "\\xfe", "ключ"}


def test_a_key_that_is_a_number_is_one() -> None:
    assert tombstone(Numbered, b"42") == 42
    assert tombstone(Numbered, b"9223372036854775807") == 2**63 - 1
