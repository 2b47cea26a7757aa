"""Deliveries: what is refused when it is defined, and what becomes of a sink that is away, altered, full or somebody else's."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import small_lake
from deltalake import DeltaTable, write_deltalake
from events import Event
from pyarrow import dataset
from small_lake import TOTALS, row
from switch_process import rebuild

from floodmark import Delivery, Env, Stream, ToSql, Tumbling, count, operator, operator_asset
from floodmark.core.errors import ConnectorError, DefinitionError, LifecycleError
from floodmark.deliveries import run as delivering
from floodmark.deliveries.results import Database, Results
from floodmark.deliveries.run import deliver
from floodmark.deliveries.sql import KEY, POSITIONS, SqlSink
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.readers import needs
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream import delivered
from floodmark.lake.stream.delivered import Delivered
from floodmark.spec.assets.delivery import Route, routes
from floodmark.spec.graph.operator import Output
from floodmark.spec.values.schema import RETRACTION, Column, Schema

Sql = Callable[..., list[Any]]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two micro-batches: 'a' is 10, 'b' is 2, 'c' was retracted."""
    return small_lake.make(tmp_path / "lake")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Of a database."""
    return f"sqlite:///{tmp_path}/sink.db"


@pytest.fixture
def sql(tmp_path: Path) -> Sql:
    """Ask the database."""

    def ask(query: str, *values: object) -> list[Any]:
        with closing(sqlite3.connect(tmp_path / "sink.db")) as connection, connection:
            return connection.execute(query, values).fetchall()

    return ask


def route(url: str, **settings: Any) -> Route:
    """The delivery of the results."""
    return routes(TOTALS, [ToSql(url, **settings)], "asset of operator 'totals'")[0]


def totals(sql: Sql) -> dict[str, int]:
    """Key -> total in the sink."""
    return dict(sql("SELECT key, total FROM totals"))


def last_values(lake: Lake) -> dict[str | None, int]:
    """Key -> total in the lake."""
    return small_lake.totals(lake)


# ---- what is refused


def test_what_is_no_delivery_is_refused() -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-332.*a list of deliveries.*brackets"):
        operator_asset(TOTALS, deliver=ToSql("sqlite://"))  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="DEFINITION-332.*deliveries, got 'sales'"):
        operator_asset(TOTALS, deliver=["sales"])  # type: ignore[list-item]
    with pytest.raises(DefinitionError, match="DEFINITION-333.*one of its outputs, got 'lat'.*Did you mean 'late'"):
        operator_asset(TOTALS, deliver=[ToSql("sqlite://", output="lat")])


@pytest.mark.feature("E3")
def test_a_sink_that_takes_nothing_back_is_refused_where_results_are_revised() -> None:
    @dataclass(frozen=True, kw_only=True)
    class ToPaper(Delivery):
        """What is printed stays."""

    with pytest.raises(
        DefinitionError, match=r"DEFINITION-331 delivery 'totals_to_delivery': .*final.*discarding.*totals__current"
    ):
        operator_asset(TOTALS, deliver=[ToPaper()])

    @operator
    def final(events: Stream[Event]) -> Stream:
        return events.key_by("key").window(Tumbling("1 minute")).aggregate(n=count())

    (printed,) = operator_asset(final, deliver=[ToPaper(name="printed")]).deliveries
    with pytest.raises(DefinitionError, match="DEFINITION-330 delivery 'printed': expected a sink of ToPaper"):
        printed.delivery.sink(printed)


def test_rows_that_are_taken_back_and_have_no_key_are_refused() -> None:
    @operator(inputs={"rows": TOTALS})
    def doubled(rows: Stream) -> Stream:
        return rows.with_columns(double="total * 2")

    with pytest.raises(DefinitionError, match="DEFINITION-334 delivery 'doubled_to_sql': expected results with a key"):
        operator_asset(doubled, deliver=[ToSql("sqlite://")])


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"url": "oracle://db"}, "335"),
        ({"url": 7}, "338"),
        ({"url": "sqlite://", "password": "hunter2"}, "339"),
        ({"url": "sqlite://", "nan": "zero"}, "335"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], code: str) -> None:
    with pytest.raises(DefinitionError, match=f"DEFINITION-{code} ToSql, {list(wrong)[-1]}"):
        ToSql(**wrong)


def test_a_password_that_is_written_out_is_refused() -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-298") as refused:
        ToSql("postgresql+psycopg://me:hunter2@db/shop")
    assert "hunter2" not in str(refused.value)


def test_a_url_by_reference_that_is_not_there_is_told(lake: Lake) -> None:
    with pytest.raises(ConnectorError, match="CONNECTOR-235 .*variable NO_SUCH_URL"):
        deliver(route(Env("NO_SUCH_URL")), lake, until_caught_up=True)  # type: ignore[arg-type]


# ---- what is delivered


def test_revisions_update_and_retractions_delete(lake: Lake, url: str, sql: Sql) -> None:
    seen: list[delivering.Delivery] = []
    deliver(route(url), lake, until_caught_up=True, on_delivery=seen.append)
    assert totals(sql) == last_values(lake) == {"a": 10, "b": 2}
    small_lake.batch(lake, 2, [row("b", 2, 7, RETRACTION), row("d", 4, 8), row(None, 5, 9)])
    at = deliver(route(url), lake, until_caught_up=True, on_delivery=seen.append)
    assert totals(sql) == last_values(lake) == {"a": 10, "d": 4, None: 5}
    assert [(one.rows, one.retractions, one.whole, one.waiting) for one in seen] == [(2, 0, True, 0), (2, 1, False, 0)]
    assert at == delivered.delivered(lake, "totals_to_sql")
    assert deliver(route(url), lake, until_caught_up=True, on_delivery=seen.append) == at
    assert len(seen) == 2, "nothing is delivered twice"


def test_upkeep_keeps_what_a_delivery_has_yet_to_read(lake: Lake, url: str) -> None:
    path = lake.output("totals__late")
    before = DeltaTable(path).version()
    deliver(route(url, output="late"), lake, until_caught_up=True)
    for number in range(2, 5):
        small_lake.batch(lake, number, [row("d", number, 5 + 2 * number)])
    assert needs(lake).floors[path] == before


def test_what_is_gone_from_the_log_is_made_up_for(lake: Lake, url: str, sql: Sql) -> None:
    deliver(route(url), lake, until_caught_up=True)
    small_lake.batch(lake, 2, [row("b", 2, 7, RETRACTION), row("d", 4, 8)])
    small_lake.batch(lake, 3, [row("e", 5, 9)])
    table = DeltaTable(lake.output("totals"))
    table.create_checkpoint()
    for version in range(table.version()):
        Path(lake.output("totals"), "_delta_log", f"{version:020}.json").unlink()
    deliver(route(url), lake, until_caught_up=True)
    assert totals(sql) == last_values(lake) == {"a": 10, "d": 4, "e": 5}


def test_an_output_that_was_made_anew_replaces_what_is_there(lake: Lake, url: str, sql: Sql, tmp_path: Path) -> None:
    deliver(route(url), lake, until_caught_up=True)
    shutil.rmtree(lake.root)
    other = small_lake.make(tmp_path / "lake", times=7)
    deliver(route(url), other, until_caught_up=True)
    assert totals(sql) == last_values(other) == {"a": 70, "b": 14}


def test_a_rebuild_and_a_rollback_are_delivered_as_a_difference(lake: Lake, url: str, sql: Sql, tmp_path: Path) -> None:
    seen: list[delivering.Delivery] = []
    before = savepoints.create("totals", lake).manifest.id
    deliver(route(url), lake, until_caught_up=True)
    beside = small_lake.make(tmp_path / "beside", times=7)
    small_lake.batch(beside, 2, [row("d", 4, 8)])
    rebuild(lake, beside)
    deliver(route(url), lake, until_caught_up=True, on_delivery=seen.append)
    assert totals(sql) == last_values(lake) == {"a": 70, "b": 14, "d": 4}
    roll_back(lake, savepoints.find(lake, before))
    deliver(route(url), lake, until_caught_up=True, on_delivery=seen.append)
    assert totals(sql) == last_values(lake) == {"a": 10, "b": 2}
    assert [(one.whole, one.taken_back) for one in seen] == [(False, True), (False, True)]


# ---- the sink


def test_a_database_that_is_away_is_waited_for(lake: Lake, tmp_path: Path) -> None:
    stop, told = threading.Event(), list[str]()

    def wait(text: str) -> None:
        told.append(text)
        (tmp_path / "later").mkdir(exist_ok=True)

    away = route(f"sqlite:///{tmp_path}/later/sink.db")
    with pytest.raises(ConnectorError, match="DELIVERY-001 delivery 'totals_to_sql': .*unable to open database file"):
        deliver(away, lake, until_caught_up=True)
    deliver(away, lake, stop=stop, on_wait=wait, on_delivery=lambda _: stop.set())
    assert told == [
        "waiting: delivery 'totals_to_sql': expected a database that answers, got unable to open database file",
        "",
    ]


@pytest.mark.parametrize(
    "alter", ["DROP TABLE totals", "ALTER TABLE totals DROP COLUMN total", f"DROP TABLE {POSITIONS}"]
)
def test_a_table_that_was_dropped_or_lost_a_column_is_filled_anew(lake: Lake, url: str, sql: Sql, alter: str) -> None:
    stop, seen = threading.Event(), list[delivering.Delivery]()

    def then(delivery: delivering.Delivery) -> None:
        seen.append(delivery)
        if len(seen) == 1:  # in the middle of the run
            sql(alter)
            small_lake.batch(lake, 2, [row("d", 4, 8)])
        else:
            stop.set()

    deliver(route(url), lake, stop=stop, on_delivery=then)
    assert totals(sql) == last_values(lake) == {"a": 10, "b": 2, "d": 4}
    assert [one.whole for one in seen] == [True, True]


def test_a_table_of_somebody_else_is_refused(lake: Lake, url: str, sql: Sql) -> None:
    sql("CREATE TABLE totals (key TEXT, total INTEGER)")
    with pytest.raises(
        ConnectorError, match=f"DELIVERY-004 .*one with the key {KEY}, got one that floodmark has not made"
    ):
        deliver(route(url), lake, until_caught_up=True)
    sql("DROP TABLE totals")
    sql(f"CREATE TABLE totals ({KEY} CHAR(32) PRIMARY KEY, total DATETIME)")
    with pytest.raises(ConnectorError, match="DELIVERY-004 .*total DATETIME, not INTEGER.*DROP TABLE totals"):
        deliver(route(url), lake, until_caught_up=True)
    assert sql("SELECT * FROM totals") == []


def test_a_table_that_another_delivery_fills_is_refused_also_where_it_has_come_between(
    lake: Lake, url: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(route(url), lake, until_caught_up=True)
    there = sql("SELECT * FROM totals ORDER BY 1")
    for named in ({"table": "totals"}, {"table": "Totals"}, {"table": "totals", "schema": "main"}):
        other = route(url, name="other", **named)
        with pytest.raises(
            ConnectorError, match=r"DELIVERY-024 .*delivery 'totals_to_sql'.*ToSql\(..., table=...\).*DELETE"
        ):
            deliver(other, lake, until_caught_up=True)
    check, looks = SqlSink._check_owner, []

    def late(*arguments: Any) -> None:
        looks.append(arguments)
        if len(looks) > 1:
            check(*arguments)

    monkeypatch.setattr(SqlSink, "_check_owner", late)
    with pytest.raises(ConnectorError, match="DELIVERY-024"):
        deliver(route(url, name="other", table="totals"), lake, until_caught_up=True)
    assert sql("SELECT * FROM totals ORDER BY 1") == there


def test_a_delivery_that_goes_into_another_table_fills_that(lake: Lake, url: str, sql: Sql) -> None:
    for table in ("totals", "second", "totals", "second"):
        small_lake.batch(lake, 2 + len(last_values(lake)), [row(f"k{len(last_values(lake))}", 7, 90)])
        deliver(route(url, table=table), lake, until_caught_up=True)
        assert dict(sql(f"SELECT key, total FROM {table}")) == last_values(lake)


def test_an_earlier_release_reads_what_is_noted_of_a_delivery(lake: Lake, url: str, sql: Sql) -> None:
    """It makes a position of all but the columns, and asks whether they have all names."""
    for schema in (None, "main"):
        at = deliver(route(url, schema=schema), lake, until_caught_up=True)
        ((content,),) = sql("SELECT position FROM _floodmark_positions")
        noted = json.loads(content)
        assert {*noted.pop("columns")} == {*TOTALS.outputs[0].schema.names}
        assert Delivered(**noted) == at
    sql("UPDATE _floodmark_positions SET position = ?", json.dumps({**noted, "columns": ["key"], "of a later one": 1}))
    assert deliver(route(url), lake, until_caught_up=True) != at, (
        "it goes on, with all results as there are more columns"
    )


def test_a_constraint_that_is_violated_stops_the_delivery_and_nothing_of_it_is_there(
    lake: Lake, url: str, sql: Sql
) -> None:
    deliver(route(url), lake, until_caught_up=True)
    sql("CREATE UNIQUE INDEX one_of_each ON totals (total)")
    small_lake.batch(lake, 2, [row("d", 4, 8), row("e", 10, 9)])
    with pytest.raises(
        ConnectorError, match="DELIVERY-006 .*UNIQUE constraint failed: totals.total.*floodmark restart totals_to_sql"
    ):
        deliver(route(url), lake, until_caught_up=True)
    assert totals(sql) == {"a": 10, "b": 2}
    sql("DROP INDEX one_of_each")
    deliver(route(url), lake, until_caught_up=True)
    assert totals(sql) == last_values(lake)


def test_two_lakes_do_not_deliver_to_one_table_under_one_name(lake: Lake, url: str, sql: Sql, tmp_path: Path) -> None:
    deliver(route(url), lake, until_caught_up=True)
    fork = small_lake.make(tmp_path / "fork")
    with pytest.raises(LifecycleError, match=f"LIFECYCLE-241 delivery 'totals_to_sql': .*got lake {lake.root}"):
        deliver(route(url), fork, until_caught_up=True)
    deliver(route(url, name="mine", table="mine"), fork, until_caught_up=True)
    assert len(sql("SELECT * FROM mine")) == 2


def test_a_lake_that_has_moved_is_told_how_it_gets_the_sink(lake: Lake, url: str, sql: Sql, tmp_path: Path) -> None:
    deliver(route(url), lake, until_caught_up=True)
    moved = Lake(str(tmp_path / "moved"))
    Path(lake.root).rename(moved.root)
    statement = f"DELETE FROM {POSITIONS} WHERE delivery = 'totals_to_sql'"
    with pytest.raises(LifecycleError, match=f"If this lake is the other one, moved, .*: {statement}, which"):
        deliver(route(url), moved, until_caught_up=True)
    sql(statement)
    deliver(route(url), moved, until_caught_up=True)
    assert totals(sql) == last_values(moved)


@pytest.mark.parametrize(("schema", "positions"), [(None, POSITIONS), ("main", f"main.{POSITIONS}")])
def test_another_lake_takes_no_position_over_with_a_table_of_its_own(
    lake: Lake, url: str, sql: Sql, tmp_path: Path, schema: str | None, positions: str
) -> None:
    deliver(route(url, schema=schema), lake, until_caught_up=True)
    noted = sql(f"SELECT * FROM {POSITIONS}")
    fork = small_lake.make(tmp_path / "fork")
    with pytest.raises(
        LifecycleError,
        match=f"LIFECYCLE-241 delivery 'totals_to_sql': expected a sink that lake {fork.root} delivers to, got lake {lake.root}, into table main.totals"
        rf"\. Only one lake .* a name and a place of its own, .*DELETE FROM {positions} WHERE delivery = 'totals_to_sql'",
    ):
        deliver(route(url, table="mine", schema=schema), fork, until_caught_up=True)
    assert sql(f"SELECT * FROM {POSITIONS}") == noted
    small_lake.batch(lake, 2, [row("d", 4, 8)])
    deliver(route(url, schema=schema), lake, until_caught_up=True)
    assert totals(sql) == last_values(lake)


def test_a_time_behind_the_year_9999_is_told_with_its_row(lake: Lake, url: str, sql: Sql) -> None:
    deliver(route(url), lake, until_caught_up=True)
    path = lake.output("totals")
    rows = DeltaTable(path).to_pyarrow_table().slice(0, 1)
    end = rows.schema.get_field_index("window_end")
    late = pa.array([253_402_300_800_000_000], rows.schema.field(end).type)
    write_deltalake(path, rows.set_column(end, rows.schema.field(end), late), mode="append")
    with pytest.raises(
        ConnectorError,
        match=r"DELIVERY-028 delivery 'totals_to_sql', column window_end: expected a time between the years 1 and 9999.*"
        r"got \+10000-01-01T00:00:00Z\. .*least\(window_end, .*floodmark restart totals_to_sql. The row: .*\"key\"",
    ):
        deliver(route(url), lake, until_caught_up=True)
    assert totals(sql) == {"a": 10, "b": 2}


def test_both_zeros_are_one_key(tmp_path: Path) -> None:
    columns = (Column(name="number", type="double"), Column(name="n", type="bigint"))
    output = Output(name="", table="zeros", schema=Schema(columns), revisable=True, keys=("number",))
    zeros = replace(route("sqlite://"), output=output)
    named = set[bytes]()
    with closing(Database(tmp_path)) as database:
        for number, zero in enumerate((-0.0, 0.0)):
            rows = pa.table({"number": [zero], "n": [1], "_kind": [0], "_sequence": [number]})
            (documents,) = Results(zeros, database).appended(dataset.dataset(rows), 1).documents()
            named |= {*documents.keys}
    assert named == {b'{"number":0.0}'}


def test_a_file_that_goes_before_it_is_read_is_told_as_one(lake: Lake, tmp_path: Path) -> None:
    routed, files = route("sqlite://"), [f"{tmp_path}/{number}.parquet" for number in range(2)]
    table = DeltaTable(lake.output("totals")).to_pyarrow_table()
    for file in files:
        pq.write_table(table, file)
    with closing(Database(tmp_path)) as database:
        changes = Results(routed, database).appended(dataset.dataset(files, format="parquet"), 1)
        assert len([change for batch in changes.changes() for change in batch]) == 3
        Path(files[1]).unlink()
        for read in (changes.changes, changes.documents):
            with pytest.raises(FileNotFoundError):
                list(read())


def test_a_position_that_another_process_has_moved_is_not_overwritten(lake: Lake, url: str, sql: Sql) -> None:
    stop = threading.Event()

    def other(_: delivering.Delivery) -> None:
        sql(f"UPDATE {POSITIONS} SET number = number + 1")
        small_lake.batch(lake, 2, [row("d", 4, 8)])

    with pytest.raises(LifecycleError, match=f"LIFECYCLE-240 .*delivery 0 in {POSITIONS}, got delivery 1"):
        deliver(route(url), lake, stop=stop, on_delivery=other)
    assert "d" not in totals(sql)


def test_one_process_is_at_work_on_a_delivery(lake: Lake, url: str) -> None:
    refused: list[LifecycleError] = []

    def again(_: delivering.Delivery) -> None:
        with (
            suppress(LifecycleError) as _,
            pytest.raises(LifecycleError, match="LIFECYCLE-003 delivery 'totals_to_sql'") as error,
        ):
            deliver(route(url), lake, until_caught_up=True)
        refused.append(error.value)

    deliver(route(url), lake, until_caught_up=True, on_delivery=again)
    assert len(refused) == 1


def test_a_column_that_comes_back_has_no_older_values(lake: Lake, url: str, sql: Sql) -> None:
    """Rows that were delivered without the column in between kept what it had before."""
    wider, narrower = route(url), route(url)
    deliver(wider, lake, until_caught_up=True)
    schema = narrower.output.schema
    without = replace(schema, columns=tuple(column for column in schema.columns if column.name != "n"))
    narrower = replace(narrower, output=replace(narrower.output, schema=without))
    small_lake.batch(lake, 2, [row("b", 3, 7)])
    deliver(narrower, lake, until_caught_up=True)
    sql("UPDATE totals SET n = 77")  # what a former version has computed
    seen: list[delivering.Delivery] = []
    deliver(wider, lake, until_caught_up=True, on_delivery=seen.append)
    assert [delivery.whole for delivery in seen] == [True]
    assert {n for (n,) in sql("SELECT n FROM totals")} == {1}
