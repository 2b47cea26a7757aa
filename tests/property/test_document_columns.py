"""JSON documents by columns: byte for byte those of the rows, for values of all types that a table may have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from hashlib import blake2b
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from events import Event
from hypothesis import given
from pyarrow import dataset

from floodmark import Stream, ToKafka, operator
from floodmark.core.errors import ConnectorError
from floodmark.deliveries.by_columns import texts_of
from floodmark.deliveries.documents import document
from floodmark.deliveries.results import HAS, Database, Selection
from floodmark.semantics.encoding.identity import identity
from floodmark.spec.assets.delivery import Route
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.values.schema import Column, Schema

FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
MICROSECONDS = (LAST - FIRST) // timedelta(microseconds=1)
INSTANTS = st.one_of(
    st.integers(0, MICROSECONDS).map(lambda passed: FIRST + timedelta(microseconds=passed)),
    st.integers(0, MICROSECONDS // 10**6).map(lambda passed: FIRST + timedelta(seconds=passed)),
    st.sampled_from([FIRST, LAST]),
)
TEXTS = st.one_of(st.text(max_size=8), st.sampled_from(["", "\x00\x1f\x7f", '"\\/', "\u2028é😀", "%s %(a)s %%"]))
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "tinyint": st.integers(-(2**7), 2**7 - 1),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1e16, 1e-5, 5e-324, 1.7976931348623157e308])),
    "boolean": st.booleans(),
    "string": TEXTS,
    "binary": st.binary(max_size=4),
    "date": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "timestamp": INSTANTS,
    "decimal(38,18)": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda digits: Decimal(digits).scaleb(-18)),
    "decimal(4,0)": st.integers(-9999, 9999).map(Decimal),
}


@st.composite
def kinds(draw: st.DrawFn, depth: int = 2) -> tuple[str, st.SearchStrategy[Any]]:
    """A type of Spark SQL, and values of it or null."""
    shape = draw(st.sampled_from(["scalar", "scalar", "array", "map", "struct"])) if depth else "scalar"
    match shape:
        case "array":
            inner, values = draw(kinds(depth - 1))
            return f"array<{inner}>", nullable(st.lists(values, max_size=3))
        case "map":
            name = draw(st.sampled_from(["string", "bigint", "date", "boolean"]))
            inner, values = draw(kinds(depth - 1))
            pairs = st.dictionaries(SCALARS[name], values, max_size=3)
            return f"map<{name},{inner}>", nullable(pairs.map(lambda entries: [*entries.items()]))
        case "struct":
            inner, values = draw(kinds(depth - 1))
            return f"struct<a:{inner},b:bigint>", nullable(
                st.fixed_dictionaries({"a": values, "b": nullable(SCALARS["bigint"])})
            )
    name = draw(st.sampled_from(sorted(SCALARS)))
    return name, draw(st.sampled_from([SCALARS[name], nullable(SCALARS[name])]))


def nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


@st.composite
def columns(draw: st.DrawFn) -> tuple[str, pa.Array]:
    kind, values = draw(kinds())
    schema = Schema((Column(name="c", type=kind),))
    array = pa.array(draw(st.lists(values, max_size=6)), arrow_schema(schema).field("c").type)
    return kind, array[draw(st.integers(0, 2)) :]


@st.composite
def results(draw: st.DrawFn) -> tuple[Route, pa.Table]:
    """The route of an output with drawn columns, revised by a key or final, and what a query selects of the output."""
    drawn = {f'c {place}%d"': draw(kinds()) for place in range(draw(st.integers(1, 4)))}
    schema = Schema(tuple(Column(name=name, type=kind) for name, (kind, _) in drawn.items()))
    named = [
        name for name, (kind, _) in drawn.items() if "map" not in kind and "struct" not in kind
    ]  # others are no keys
    keys = tuple(named[: draw(st.integers(0, len(named)))])
    output = Output(name="", table="t", schema=schema, revisable=bool(keys), keys=keys)
    final = {"_sequence": SCALARS["bigint"], "_event_time": nullable(INSTANTS), "_floodmark_number": st.integers(1, 9)}
    stamps = {} if keys else final
    kinds_of_stamps = dict(zip(final, (pa.int64(), pa.timestamp("us", tz="UTC"), pa.int64()), strict=True))
    row = st.fixed_dictionaries({name: values for name, (_, values) in drawn.items()} | stamps | {HAS: st.booleans()})
    arrow = pa.schema(
        [*arrow_schema(schema), *((name, kinds_of_stamps[name]) for name in stamps), pa.field(HAS, pa.bool_())]
    )
    rows = pa.Table.from_pylist(draw(st.lists(row, max_size=5)), schema=arrow)
    return Route(name="d", operator=PASSED, output=output, delivery=ToKafka("t", "h:1")), rows


def arrow_schema(schema: Schema) -> pa.Schema:
    from floodmark.semantics.encoding.columns import arrow_schema as made

    return made(schema)


def _passed(events: Stream[Event]) -> Stream:
    """Rows as they are."""
    return events.select("key")


PASSED: Operator = operator(_passed, name="passed")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with closing(Database(tmp_path_factory.mktemp("scratch"))) as opened:
        yield opened


@given(columns())
def test_a_column_has_the_texts_of_its_values(drawn: tuple[str, pa.Array]) -> None:
    kind, column = drawn
    assert texts_of(column) == [document(value) for value in column.to_pylist(maps_as_pydicts="strict")], kind


BEYOND = 253_402_300_800_000_000
INSTANT = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("timestamp", pa.array([0, BEYOND], INSTANT)),
        ("timestamp", pa.array([0, -62_135_596_800_000_001], INSTANT)),
        ("date", pa.array([0, 2_932_897], pa.date32())),
        ("array<timestamp>", pa.array([None, [0, BEYOND]], pa.list_(INSTANT))),
        ("struct<a:timestamp>", pa.array([None, {"a": BEYOND}], pa.struct([("a", INSTANT)]))),
        ("map<string,timestamp>", pa.array([None, [("a", BEYOND)]], pa.map_(pa.string(), INSTANT))),
    ],
)
def test_a_time_that_python_has_no_date_for_is_told(database: Database, kind: str, values: pa.Array) -> None:
    schema = Schema((Column(name="k", type="bigint"), Column(name="c", type=kind)))
    output = Output(name="", table="t", schema=schema, revisable=True, keys=("k",))
    route = Route(name="d", operator=PASSED, output=output, delivery=ToKafka("t", "h:1"))
    rows = pa.table({"k": [1, 2], "c": values, HAS: [True, True]})
    selection = Selection(route, database, "SELECT * FROM rows", {"rows": dataset.dataset(rows)}, at=3)
    for read in (selection.changes, selection.documents):
        with pytest.raises(ConnectorError, match="DELIVERY-028 delivery 'd', column c: .*The row: .*2"):
            list(read())  # type: ignore[operator]  # one or the other


@given(drawn=results())
def test_documents_are_those_of_the_changes(database: Database, drawn: tuple[Route, pa.Table]) -> None:
    route, rows = drawn
    selection = Selection(route, database, "SELECT * FROM rows", {"rows": dataset.dataset(rows)}, at=3)
    changes = [change for batch in selection.changes() for change in batch]
    named = route.keys or ("_sequence", "_event_time", "_floodmark_number")
    identities = [identity(tuple(row[name] for name in named)) for row in rows.to_pylist(maps_as_pydicts="strict")]
    assert [change.key for change in changes] == [blake2b(name, digest_size=16).hexdigest() for name in identities]
    batches = [*selection.documents()]
    assert [key for batch in batches for key in batch.keys] == [
        document(change.values).encode() if change.values else change.key.encode() for change in changes
    ]
    assert [value for batch in batches for value in batch.values] == [
        None if change.row is None else document(change.row).encode() for change in changes
    ]


def test_a_time_that_no_date_has_is_an_error_as_in_rows() -> None:
    column = pa.array([253_402_300_800_000_000]).cast(pa.timestamp("us", tz="UTC"))
    with pytest.raises(OverflowError, match="out of range"):
        texts_of(column)


def test_columns_without_values_have_no_texts() -> None:
    for kind in ("timestamp", "double", "string", "array<int>"):
        schema = Schema((Column(name="c", type=kind),))
        assert texts_of(pa.array([], arrow_schema(schema).field("c").type)) == []
        assert texts_of(pa.nulls(2, arrow_schema(schema).field("c").type)) == ["null", "null"]
