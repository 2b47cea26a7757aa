"""Texts of JSON that are checked together are checked as each by itself: the same rows come through, and the same are broken, with the same reasons."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import Field, field_validator

from floodmark import BoundedOutOfOrderness, Contract, EventTime, Rows, Source
from floodmark.connectors.entries import Columns, Entry, JsonTexts, Record, together
from floodmark.connectors.judging import json_columns
from floodmark.connectors.judging.validation import Broken, Rules
from floodmark.connectors.unit import Unreadable

NOW = 1_700_000_000_000


class Reading(Contract):
    at: EventTime
    sensor: str
    kind: Literal["a", "b"] = "a"
    level: Literal[1, 2] | None = None
    value: float = Field(ge=-1.5, lt=1e300)
    count: int | None = Field(default=None, gt=0, alias="n")
    total: int = 7
    ok: bool
    day: dt.date | None
    seen: dt.datetime | None = None


class Owned(Contract):
    at: EventTime
    sensor: str

    @field_validator("sensor")
    @classmethod
    def short(cls, value: str) -> str:
        return value.strip()


class Closed(Contract, extra="forbid"):
    at: EventTime
    sensor: str


class Stripped(Contract, str_strip_whitespace=True):
    at: EventTime
    sensor: str


class Sent(Contract):
    """A message, with fields that are added to it."""

    at: EventTime = Field(alias="_timestamp")
    sensor: str
    partition: int = Field(alias="_partition", ge=0)
    offset: float = Field(alias="_offset")
    key: str | None = Field(default=None, alias="_key")
    gone: bool = Field(default=False, alias="_deleted")


class Odd(Contract):
    """A message whose added fields have other types."""

    at: EventTime
    partition: str = Field(alias="_partition")
    offset: dt.datetime | None = Field(alias="_offset")
    key: dt.date | None = Field(alias="_key")
    gone: float = Field(alias="_deleted")


def source(contract: type[Contract]) -> Source:
    return Source("readings", contract=contract, connector=Rows([]), watermark=BoundedOutOfOrderness("1 minute"))


def text(at: str = "1690000000000", **fields: str) -> bytes:
    """A good row, with some fields as they are written in JSON; an empty text leaves a field out."""
    written = {"at": at, "sensor": '"s"', "value": "1.5", "ok": "true", "day": '"2023-01-31"'} | fields
    return ("{" + ", ".join(f'"{name}": {value}' for name, value in written.items() if value) + "}").encode()


def judged(entries: Iterable[Entry], contract: type[Contract] = Reading) -> tuple[str, list[Broken], dict[str, int]]:
    """The good rows, each value as Python writes it, the broken ones in order, and the fields that no row of a sample should have."""
    batches = list(Rules(source(contract), NOW).batches(entries, "json"))
    rows = [row for batch in batches for row in batch.rows.to_pylist()]
    broken = sorted((row for batch in batches for row in batch.broken), key=lambda row: row.position)
    return "\n".join(map(repr, rows)), broken, {name: 1 for batch in batches for name in batch.left_out.rows}


def check_same(texts: Sequence[bytes], contract: type[Contract] = Reading) -> None:
    together = JsonTexts(range(10, 10 + len(texts)), texts)
    assert judged([together], contract) == judged(together.records(), contract)


NUMBERS = st.integers(-(2**70), 2**70).map(str) | st.floats().map(json.dumps) | st.decimals(places=19).map(str)
ODD_NUMBERS = st.sampled_from(
    [
        "NaN",
        "Infinity",
        "-Infinity",
        "Inf",
        "-NaN",
        "nan",
        "1e999",
        "-1e-999",
        "-0",
        "-0.0",
        "0",
        "01",
        "1.",
        ".5",
        "+1",
        "1.0",
        "1e2",
        "9223372036854775807",
        "9223372036854775808",
        "12345678901234567890123456789012345678",
        "0.12345678901234567890123456789012345678",
        "1.7976931348623159e308",
        "5e-324",
        "null",
        "true",
        '"1"',
        "[]",
        "{}",
    ]
)
TIMES = st.sampled_from(
    [
        "1690000000000",
        "1690000000",
        "1690000000.5",
        "999999999999",
        "10000000000000",
        "20230131",
        "0",
        "-1",
        '"2023-01-31T01:02:03Z"',
        '"2023-01-31T01:02:03"',
        '"2023-01-31T01:02:03.1234567Z"',
        '"2023-01-31T01:02:03.12+02:00"',
        '"2023-01-31T01:02:03-24:00"',
        '"2023-01-31T01:02Z"',
        '"2023-02-30T01:02:03Z"',
        '"2023-01-31T24:00:00Z"',
        '"2023-01-31T23:59:60Z"',
        '"2023-01-31"',
        '"0001-01-01T00:00:00Z"',
        '"1000-01-01T00:00:00+01:00"',
        '"9999-12-31T23:59:59Z"',
        '"20230131"',
        '"2023-01-31t01:02:03z"',
        '"now"',
        "null",
        "true",
        "[]",
        '"2023-01-31\\u00541:02:03"',
        '"1690000000000"',
    ]
) | st.datetimes(dt.datetime(1960, 1, 1), dt.datetime(2023, 11, 1)).map(lambda at: json.dumps(at.isoformat() + "Z"))
WORDS = st.text(st.characters(codec="utf-8"), max_size=4)
TEXTS = (
    WORDS.map(json.dumps)
    | WORDS.map(lambda word: json.dumps(word, ensure_ascii=False))
    | st.sampled_from(
        [
            '"\\ud800"',
            '"\\udc00"',
            '"\\ud83d\\ude00"',
            '"\\u0000"',
            '"\x01"',
            '"Inf"',
            '": NaN"',
            '"a\\nb"',
            "1",
            "null",
            '"\\x"',
            '"',
        ]
    )
)
ANY = (
    NUMBERS
    | ODD_NUMBERS
    | TIMES
    | TEXTS
    | st.sampled_from(["[" * 210 + "]" * 210, '{"a": [Inf]}', "1" * 4400, "1" * 4300, "tru"])
)
ODD = st.fixed_dictionaries(
    {},
    optional={
        "at": TIMES,
        "sensor": TEXTS,
        "kind": st.sampled_from(['"a"', '"b"', '"c"', "null", ""]),
        "level": st.sampled_from(["1", "2", "3", "null", "1.0", '"1"', "true"]),
        "value": NUMBERS | ODD_NUMBERS,
        "n": NUMBERS | ODD_NUMBERS,
        "count": st.just("5"),
        "total": st.sampled_from(["1", "null", "-0", "1.0"]),
        "ok": st.sampled_from(["true", "false", "null", "1", '"true"', ""]),
        "day": TIMES | st.sampled_from(["null", "", '"2023-02-29"', '"2024-02-29"', '"0000-01-01"']),
        "seen": TIMES,
        "more": ANY,
    },
).map(lambda fields: text(**{"at": "1690000000000", **fields}))
DAYS = st.dates(dt.date(1000, 1, 1)).map(lambda day: f'"{day}"')
INSTANTS = st.datetimes(dt.datetime(1960, 1, 1), dt.datetime(2023, 11, 1))
FINE_TIMES = st.one_of(
    st.integers(10**12, 1_690_000_000_000).map(str),
    st.tuples(INSTANTS, st.sampled_from(["Z", "+00:00", "-23:59", "+05:30"])).map(
        lambda both: f'"{both[0].isoformat()}{both[1]}"'
    ),
    INSTANTS.map(lambda at: f'"{at}"'),
)
FINE = st.tuples(
    FINE_TIMES,
    FINE_TIMES | st.just("null"),
    st.fixed_dictionaries(
        {"kind": st.sampled_from(['"a"', '"b"']), "total": st.integers(-(2**63), 2**63 - 1).map(str)},
        optional={
            "sensor": WORDS.map(json.dumps) | WORDS.map(lambda word: json.dumps(word, ensure_ascii=False)),
            "level": st.sampled_from(["1", "2", "null"]),
            "value": st.floats(-1.5, 1e299).map(repr) | st.integers(0, 2**90).map(str) | st.decimals(0, 9, places=25).map(str),
            "n": st.integers(1, 2**63 - 1).map(str) | st.just("null"),
            "ok": st.sampled_from(["true", "false"]),
            "day": DAYS | st.just("null"),
            "more": st.sampled_from(["1", "null", '"x"', '[{"a": [1e5, -0]}]']),
        },
    ),
)  # fmt: skip
"""Texts that Arrow reads, of which those beside each other write times alike."""
BROKEN = st.sampled_from(
    [
        b"",
        b"{}",
        b"null",
        b"[1]",
        b" " + text(),
        text() + b" ",
        text() + text(),
        text()[:-1],
        text() + b"\n",
        text().replace(b", ", b",\n"),
        text().replace(b", ", b",\r"),
        text() + b"\0}",
        text(sensor='"\0"'),
        b"\xef\xbb\xbf" + text(),
        text(sensor='"?"').replace(b"?", b"\xff"),
        text(more='"?"').replace(b"?", b"\xed\xa0\x80"),
        text() + b'{"sensor":"}',
        b'{"}',
        text(sensor='"a", "sensor": "b"'),
        text(more='1, "more": 2'),
        text().replace(b"sensor", b"\\u0073ensor"),
        text(at="1890000000000"),
        text().replace(b'"', b"'"),
        text(more="1, // a\n"),
    ]
)


@given(st.lists(ODD | BROKEN | st.just(text()), max_size=12))
@example([text(), text(value="-0")])
@example([text(), text(value="NaN")])
@example([text(more="Inf"), text(more="-NaN")])
@example([text() + b'{"x":"}', b'{"}'])
@example([text(more="[" * 210 + "]" * 210)])
@example([text(more="1" * 4400)])
@example([text(day=""), text()])
@example([text(kind=""), text()])
def test_texts_are_judged_together_as_each_by_itself(texts: list[bytes]) -> None:
    check_same(texts)


@pytest.mark.parametrize("contract", [Sent, Odd])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    b'{"sensor": "a"}',
                    b'{"at": 1690000000000, "sensor": "b", "_partition": 7, "_x": 1}',
                    b"{}",
                    b"[]",
                    b"{} ",
                ]
            ),
            st.integers(0, 9),
            st.sampled_from([1_690_000_000_000, 1_690_000_000, None]),
            st.none() | st.sampled_from(["", "k", "2023-01-31", "NaN", "\ufffd"]),
        ),
        max_size=4,
    )
)
def test_fields_that_are_added_are_judged_as_those_of_the_text(
    contract: type[Contract], drawn: list[tuple[bytes, int, int | None, str | None]]
) -> None:
    added = {
        "_partition": [partition for _, partition, _, _ in drawn],
        "_offset": [*range(len(drawn))],
        "_timestamp": [at for _, _, at, _ in drawn],
        "_key": [key for _, _, _, key in drawn],
        "_deleted": [False] * len(drawn),
    }
    together = JsonTexts(range(len(drawn)), [text for text, *_ in drawn], added)
    assert judged([together], contract) == judged(together.records(), contract)
    assert judged(together.pieces(2), contract) == judged(together.records(), contract)


def test_good_texts_with_fields_that_are_added_are_judged_by_columns() -> None:
    added = {"_timestamp": [1_690_000_000_000], "_partition": [1], "_offset": [2], "_key": [None], "_deleted": [False]}
    assert json_columns.rows_of(Sent, [b'{"sensor": "a"}'], added) is not None


def test_a_whole_number_that_is_no_exact_float_is_judged_as_one_of_the_text() -> None:
    """Producers write the timestamps of their messages themselves."""
    added = {"_partition": [0], "_offset": [(1 << 53) + 1], "_timestamp": [1_690_000_000_000], "_key": [None]}
    together = JsonTexts([0], [b'{"sensor": "a"}'], added | {"_deleted": [False]})
    assert judged([together], Sent) == judged(together.records(), Sent)


@given(FINE)
def test_what_arrow_reads_is_what_pydantic_reads(drawn: tuple[str, str, dict[str, str]]) -> None:
    at, seen, fields = drawn
    texts = [text(at, seen=seen, **fields), text(at, seen=seen, kind='"a"', total="1")]
    check_same(texts)


@given(ODD | BROKEN)
def test_a_text_is_judged_alone_as_among_others(one: bytes) -> None:
    check_same([one])


@pytest.mark.parametrize("contract", [Owned, Closed, Stripped])
def test_contracts_that_arrow_cannot_check_are_checked_row_by_row(contract: type[Contract]) -> None:
    texts = [b'{"at": 1690000000000, "sensor": " a "}', b'{"at": 1690000000000, "sensor": "b", "more": 1}']
    assert json_columns.rows_of(contract, texts) is None
    check_same(texts, contract)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"at": '"2023-01-31T01:02:03.5Z"', "seen": '"2023-01-31 01:02:03"'},
        {"at": '"2023-01-31T01:02:03+02:00"', "sensor": '"\u00fc\\ud83d\\ude00"', "more": '{"a": [1, {}]}'},
        {"sensor": f'"{"long " * 2_000}"'},
        {"kind": '"b"', "level": "2", "n": "9223372036854775807", "total": "-1", "seen": "1690000000000"},
    ],
)
def test_good_texts_are_judged_by_columns(fields: dict[str, str]) -> None:
    texts = [text(**({"kind": '"a"', "total": "1"} | fields)), text(**({"kind": '"b"', "total": "2"} | fields))]
    assert json_columns.rows_of(Reading, texts) is not None
    check_same(texts)


def test_texts_that_are_larger_than_a_block_of_arrow_are_checked_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [text(kind='"a"', total="1")] * 2
    monkeypatch.setattr(json_columns, "_MOST", 2 * len(texts[0]))
    assert json_columns.rows_of(Reading, texts) is not None
    monkeypatch.setattr(json_columns, "_MOST", 2 * len(texts[0]) - 1)
    assert json_columns.rows_of(Reading, texts) is None


def test_one_broken_text_among_many_takes_only_its_neighbours_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are told by whether pydantic has seen them; 5,000 are five pieces."""
    texts = [text(kind='"a"', total=f"{number}") for number in range(5_000)]
    texts[2_500] = text(ok="1")
    slow = list[Any]()
    records = JsonTexts.records
    monkeypatch.setattr(JsonTexts, "records", lambda self: (slow.extend(self.positions), records(self))[1])
    batches = list(Rules(source(Reading), NOW).batches([JsonTexts(range(5_000), texts)], "json"))
    assert slow == [*range(2_048, 3_072)]
    assert [row.position for batch in batches for row in batch.broken] == [2_500]
    totals = pa.Table.from_batches([batch.rows for batch in batches])["total"].to_pylist()
    assert totals == [number for number in range(5_000) if number != 2_500]


@pytest.mark.parametrize("sensor", [b'"s"', b"1"])
def test_rows_that_are_checked_one_by_one_are_few_in_memory(sensor: bytes) -> None:
    """Messages of 1.5 MB, of which a reader has two at hand at a time, for a contract that Arrow cannot check: good ones, and broken ones."""
    large = b'{"at": 1690000000000, "sensor": ' + sensor + b', "more": "' + b"x" * 1_500_000 + b'"}'
    entries = (JsonTexts([2 * number, 2 * number + 1], [large, large]) for number in range(5))
    batches = [*Rules(source(Owned), NOW).batches(entries, "json")]
    assert [len(batch.rows) + len(batch.broken) for batch in batches] == [3, 3, 3, 1]


def test_broken_rows_of_columns_are_few_in_memory() -> None:
    broken = pa.RecordBatch.from_pydict({"at": [1_690_000_000_000] * 6_000, "sensor": [1] * 6_000})
    batches = [*Rules(source(Owned), NOW).batches([Columns(6_000 * number, broken) for number in range(4)], "python")]
    assert [len(batch.broken) for batch in batches] == [16_384, 7_616]


def test_what_stands_between_texts_keeps_its_place_also_before_an_error() -> None:
    def records() -> Iterator[Record]:
        yield Record(1, b"1", b"1")
        yield Record(2, b"2", b"2")
        yield Record(3, b"3", None, "no text")
        yield Record(4, b"4", b"4")
        raise Unreadable

    entries = together(records())
    read = [next(entries), next(entries), next(entries)]
    assert read == [JsonTexts([1, 2], [b"1", b"2"]), Record(3, b"3", None, "no text"), JsonTexts([4], [b"4"])]
    with pytest.raises(Unreadable):
        next(entries)
