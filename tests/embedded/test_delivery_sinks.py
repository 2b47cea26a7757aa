"""Deliveries to programs, topics and folders: received at least once with one key per change, in order; and what is wrong with a sink."""

from __future__ import annotations

import http.client
import json
import shutil
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.parquet as pq
import pytest
import small_lake
from confluent_kafka import KafkaError, KafkaException
from delivery_process import route
from delivery_schedule import process
from events import Event
from hooks import Hook
from kafka_topic import committed
from pyarrow.fs import FileSelector
from small_lake import TOTALS, row
from streams import PLAIN

from floodmark import Env, Stream, ToFiles, ToKafka, ToWebhook, operator
from floodmark.core.errors import ConnectorError, DefinitionError, LifecycleError
from floodmark.deliveries import files, kafka, results
from floodmark.deliveries.files import MANIFEST
from floodmark.deliveries.follow import Log
from floodmark.deliveries.run import Delivery, deliver
from floodmark.deliveries.sink import Changes, Documents
from floodmark.lake.folder import storage
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.delivered import Delivered, position_file
from floodmark.spec.assets.delivery import Route, routes
from floodmark.spec.values.schema import RETRACTION

if TYPE_CHECKING:
    from kafka_broker import Broker
    from s3_server import Proxy, Server


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two micro-batches: 'a' is 10, 'b' is 2, 'c' was retracted."""
    return small_lake.make(tmp_path / "lake")


def bound(delivery: Any) -> Route:
    """The delivery of the results."""
    return routes(TOTALS, [delivery], "test")[0]


@pytest.fixture
def hook() -> Iterator[Hook]:
    """A program that is called."""
    with Hook.serving() as made:
        yield made


# ---- programs


@pytest.mark.feature("Z28")
def test_a_program_is_told_each_change_from_the_first_start_on(
    lake: Lake, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    told = bound(ToWebhook(hook.url, headers={"X-Token": Env("TOKEN")}))
    deliver(told, lake, until_caught_up=True)
    assert hook.requests == []
    small_lake.batch(lake, 2, [row("b", 2, 7, RETRACTION), row("d", 4, 8)])
    deliver(told, lake, until_caught_up=True)
    assert sorted(hook.seen) == [("delete", "b", None), ("upsert", "d", 4)]
    assert {token for *_, token in hook.requests} == {"s3cret"}
    deliver(told, lake, until_caught_up=True)
    assert len(hook.requests) == 2


@pytest.mark.parametrize(
    "point", ["delivery.before_rows", "delivery.after_batch", "delivery.before_note", "delivery.after_note"]
)
@pytest.mark.few(1)
def test_a_change_that_is_sent_again_has_the_key_that_it_had(lake: Lake, hook: Hook, point: str) -> None:
    assert process(lake, TOTALS, "webhook", hook.url, at=point) != 0
    small_lake.batch(lake, 2, [row("b", 3, 7), row("d", 4, 8)])
    assert process(lake, TOTALS, "webhook", hook.url) == 0
    keys = {key: (body["change"], body["key"]["key"], body["row"]["total"]) for key, body, _ in hook.requests}
    assert sorted(keys.values()) == [("upsert", "a", 10), ("upsert", "b", 2), ("upsert", "b", 3), ("upsert", "d", 4)]
    assert all(
        (body["change"], body["key"]["key"], body["row"]["total"]) == keys[key] for key, body, _ in hook.requests
    )


def test_a_program_that_hangs_or_is_ill_is_waited_for_and_asked_again(
    lake: Lake, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, told, stop, number = threading.Event(), list[str](), threading.Event(), count(1)

    class Patient(http.client.HTTPConnection):
        """Waits as long as a busy machine takes, but for the answer that does not come."""

        def getresponse(self) -> http.client.HTTPResponse:
            self.sock.settimeout(0.2 if next(number) == 2 else 300)
            return super().getresponse()

    def hang() -> int:
        over.wait(600)
        return 204

    monkeypatch.setattr(http.client, "HTTPConnection", Patient)
    hook.answers = [503, hang]
    deliver(
        bound(ToWebhook(hook.url, timeout="200 ms", start="earliest")),
        lake,
        stop=stop,
        on_wait=told.append,
        on_delivery=lambda _: stop.set(),
    )
    over.set()
    where = "waiting: delivery 'totals_to_webhook': expected"
    assert told == [
        f"{where} a receiver that takes it, got answer 503",
        f"{where} an answer of the receiver, got none within 200 ms",
        "",
    ]
    assert {(kind, key) for kind, key, _ in hook.seen} == {("upsert", "a"), ("upsert", "b")}
    assert len({key for key, *_ in hook.requests}) == 2, "sent again under the keys of before"


def test_a_program_that_refuses_a_change_stops_the_delivery(lake: Lake, hook: Hook) -> None:
    hook.answers = [422]
    with pytest.raises(
        ConnectorError, match="DELIVERY-008 .*an answer of 2xx.*422.*floodmark restart totals_to_webhook"
    ):
        deliver(bound(ToWebhook(hook.url, start="earliest")), lake, until_caught_up=True)


def test_a_program_with_long_answers_is_told_each_change_once(lake: Lake, hook: Hook) -> None:
    hook.content = b"x" * 3_000
    deliver(bound(ToWebhook(hook.url, start="earliest")), lake, until_caught_up=True)
    assert sorted(hook.seen) == [("upsert", "a", 10), ("upsert", "b", 2)]


def test_a_program_that_takes_few_changes_at_a_time_is_told_all_of_them(
    lake: Lake, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("floodmark.deliveries.run._FIRST_SECONDS", 0.01)
    small_lake.batch(lake, 2, [row(f"k{number}", number, 7 + number) for number in range(4)])
    stop = threading.Event()
    hook.answers = [204, 429, 204, 429, 204, 429]
    told = bound(ToWebhook(hook.url, timeout="5 minutes", start="earliest"))
    deliver(told, lake, stop=stop, on_delivery=lambda _: stop.set())
    assert len(hook.requests) == 9
    assert len({key for key, *_ in hook.requests}) == 6


def test_a_program_that_closes_connections_is_told_each_change_once(lake: Lake, hook: Hook) -> None:
    hook.closes = True
    deliver(bound(ToWebhook(hook.url, start="earliest")), lake, until_caught_up=True)
    assert sorted(hook.seen) == [("upsert", "a", 10), ("upsert", "b", 2)]


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("https://hooks.example.com/Größe", {}),
        ("https://hooks.example.com/a?b=c d", {}),
        ("https://hooks.example.com/", {"X-Shop": "Київ"}),
        ("https://hooks.example.com/", {"X Shop": "a"}),
        ("https://hooks.example.com/", {"X-Shop": "a\nX-Other: b"}),
    ],
)
def test_what_http_does_not_carry_is_refused_before_the_first_request(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, url: str, headers: dict[str, str]
) -> None:
    monkeypatch.setenv("HOOK", url)
    with pytest.raises(ConnectorError, match="DELIVERY-003 delivery 'totals_to_webhook'"):
        deliver(bound(ToWebhook(Env("HOOK"), headers=headers)), lake, until_caught_up=True)


def test_changes_behind_the_first_start_are_told_though_it_was_killed_among_them(
    lake: Lake, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, now = bound(ToWebhook(hook.url)), Log.now

    def committing(log: Log) -> Any:
        """A commit comes right behind the look that says where the delivery begins."""
        position = now(log)
        small_lake.batch(lake, 2, [row("d", 4, 8), row("e", 5, 9)])
        monkeypatch.setattr(Log, "now", now)
        return position

    monkeypatch.setattr(Log, "now", committing)
    hook.answers = [204, 422]  # the second change ends the delivery
    with pytest.raises(ConnectorError, match="DELIVERY-008"):
        deliver(told, lake, until_caught_up=True)
    deliver(told, lake, until_caught_up=True)
    assert sorted(hook.seen) == [("upsert", "d", 4)] * 2 + [("upsert", "e", 5)] * 2
    assert {key for key, *_ in hook.requests[:2]} == {key for key, *_ in hook.requests[2:]}


def test_wrong_settings_are_refused() -> None:
    for wrong in ({"timeout": "0 s"}, {"start": "now"}):
        with pytest.raises(DefinitionError, match="DEFINITION-337 ToWebhook"):
            ToWebhook("https://hooks.example.com/x", **wrong)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="DEFINITION-298"):
        ToWebhook("https://me:secret@hooks.example.com/x")
    for wrong in ({"folder": ""}, {"folder": "x", "format": "xml"}):
        with pytest.raises(DefinitionError, match="DEFINITION-336 ToFiles"):
            ToFiles(**wrong)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="DEFINITION-312 .*transactional.id.*name="):
        ToKafka("sales", "broker:9092", properties={"transactional.id": "mine"})
    for name in ("max.in.flight", "max.in.flight.requests.per.connection", "enable.idempotence"):
        with pytest.raises(DefinitionError, match=f"DEFINITION-312 .*{name}"):
            ToKafka("sales", "broker:9092", properties={name: 5})
    with pytest.raises(DefinitionError, match="DEFINITION-311"):
        ToKafka("sales", "broker")


# ---- folders


def test_a_lake_that_has_moved_tells_a_program_the_rest_once_its_position_names_it(
    lake: Lake, hook: Hook, tmp_path: Path
) -> None:
    told = bound(ToWebhook(hook.url, start="earliest"))
    deliver(told, lake, until_caught_up=True)
    moved = Lake(str(tmp_path / "moved"))
    Path(lake.root).rename(moved.root)
    small_lake.batch(moved, 2, [row("d", 4, 8)])
    file = position_file(moved, told.name)
    with pytest.raises(LifecycleError, match=f'LIFECYCLE-241 .*write "{moved.root}" as "lake" into {file}'):
        deliver(told, moved, until_caught_up=True)
    Path(file).write_text(Path(file).read_text().replace(lake.root, moved.root))
    deliver(told, moved, until_caught_up=True)
    assert hook.seen[2:] == [("upsert", "d", 4)]


def test_an_empty_text_in_a_csv_is_not_a_null(lake: Lake, tmp_path: Path) -> None:
    small_lake.batch(lake, 2, [row(None, 5, 7), row("", 7, 9), row('a "b",\nc', 8, 10)])
    deliver(bound(ToFiles(str(tmp_path / "out"), format="csv", changes=True)), lake, until_caught_up=True)
    (file,) = (tmp_path / "out").glob("*.csv")
    assert {line.partition(",2020")[0] for line in file.read_text().splitlines()} >= {"", '""', "a", '"a ""b"",', 'c"'}
    read = duckdb.sql(f"SELECT key, total FROM read_csv('{file}', allow_quoted_nulls=false)").fetchall()
    assert {*read} == {(None, 5), ("", 7), ('a "b",\nc', 8), ("a", 10), ("b", 2)}


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_each_commit_is_a_file_of_changes(lake: Lake, tmp_path: Path, kind: Any) -> None:
    folder = tmp_path / "out"
    written = bound(ToFiles(str(folder), format=kind, changes=True))
    deliver(written, lake, until_caught_up=True)
    small_lake.batch(lake, 2, [row("b", 2, 7, RETRACTION), row("d", 4, 8)])
    deliver(written, lake, until_caught_up=True)
    names = sorted(file.name for file in folder.iterdir())
    assert names == [f"0000000000-1.{kind}", f"0000000001-2.{kind}", MANIFEST]
    last = folder / names[1]
    if kind == "parquet":
        rows = pq.read_table(last).to_pylist()
    elif kind == "json":
        rows = [json.loads(line) for line in last.read_text().splitlines()]
    else:
        head, *lines = (line.split(",") for line in last.read_text().splitlines())
        rows = [dict(zip(head, line, strict=True)) for line in lines]
    assert sorted((r["_change"], r["key"], f"{r['total'] or ''}") for r in rows) == [
        ("delete", "b", ""),
        ("upsert", "d", "4"),
    ]


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_files_are_divided_among_folders_as_other_programs_read_them(lake: Lake, tmp_path: Path, kind: Any) -> None:
    folder, keys = tmp_path / "out", ["a/b=c", "größe 漢", "100%", "0", "x\ny", 'say "yes"']
    small_lake.batch(lake, 2, [row(None, 0, 20), *(row(key, number, 21) for number, key in enumerate(keys, 1))])
    written = bound(ToFiles(str(folder), format=kind, changes=True, partition_by="key"))
    deliver(written, lake, until_caught_up=True)
    small_lake.batch(lake, 3, [row("0", 4, 30, RETRACTION), row("a", 11, 31)])
    deliver(written, lake, until_caught_up=True)
    read = {"parquet": "read_parquet", "csv": "read_csv", "json": "read_json"}[kind]
    types = "hive_types={'key': VARCHAR}, hive_partitioning=true, filename=true"
    query = f"SELECT key, total, _change FROM {read}('{folder}/**/0*.{kind}', {types}) ORDER BY filename[-{len(kind) + 13}:]"
    last = {key: total for key, total, change in duckdb.sql(query).fetchall() if change == "upsert"}
    assert last == {"a": 11, "b": 2, None: 0} | {key: number for number, key in enumerate(keys, 1)}
    gone = duckdb.sql(query.replace(" ORDER", " WHERE _change = 'delete' ORDER")).fetchall()
    assert gone == [("0", None, "delete")]


def test_very_many_changes_are_divided_in_several_files(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_TOGETHER", 2)
    monkeypatch.setattr(results, "_ROWS", 2)
    small_lake.batch(lake, 2, [row(f"k{number}", number, number) for number in range(20, 25)])
    folder = tmp_path / "out"
    deliver(bound(ToFiles(str(folder), changes=True, partition_by="key")), lake, until_caught_up=True)
    table = pq.read_table(folder).to_pydict()
    assert dict(zip(table["key"], table["total"], strict=True)) == small_lake.totals(lake)
    names = {file.name for file in folder.rglob("*.parquet")}
    parts = [f"0000000000-2.{part}.parquet" for part in range(1, len(names))]
    assert len(parts) > 1, "how many rows come together is DuckDB's"
    assert names == {"0000000000-2.parquet", *parts}


def _keys(events: Stream[Event]) -> Stream:
    """Keys alone."""
    return events.select("key")


def test_what_cannot_divide_files_is_refused() -> None:
    for columns, got in (
        ("day", "columns of the output, got no column 'day'.*Columns: "),
        (["window_start"], "texts, whole numbers, booleans or dates, got 'window_start' of type timestamp"),
        (["total"], "with changes=True columns of the key, .* got 'total'"),
    ):
        with pytest.raises(DefinitionError, match=f"DEFINITION-473 .*expected {got}"):
            bound(ToFiles("out", changes=True, partition_by=columns))
    with pytest.raises(DefinitionError, match="DEFINITION-474"):
        routes(operator(_keys, name="keys"), [ToFiles("out", partition_by="key")], "test")
    with pytest.raises(DefinitionError, match="DEFINITION-336 .*each once"):
        ToFiles("out", partition_by=["key", "key"])
    with pytest.raises(
        DefinitionError, match="DEFINITION-473 .*'key' of results that are final.*Leave changes=True out"
    ):
        bound(ToFiles("out", output="late", changes=True, partition_by="key"))


@pytest.mark.parametrize("key", ["x" * 300, "", "__HIVE_DEFAULT_PARTITION__"])
def test_a_text_that_names_no_folder_stops_the_delivery(lake: Lake, tmp_path: Path, key: str) -> None:
    small_lake.batch(lake, 2, [row(key, 1, 20)])
    got = f"got '{key[:90]}.* a new folder"
    with pytest.raises(ConnectorError, match=f"DELIVERY-023 .*not empty, and of at most 255 bytes.*{got}"):
        deliver(bound(ToFiles(str(tmp_path / "out"), changes=True, partition_by="key")), lake, until_caught_up=True)


def test_texts_that_are_one_folder_on_a_disk_that_ignores_case_are_refused(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_lake.batch(lake, 2, [row("A", 4, 20), row("d", 5, 21)])
    divided = bound(ToFiles(str(tmp_path / "out"), changes=True, partition_by="key"))
    folders = storage.folders
    monkeypatch.setattr(storage, "folders", lambda path: [*{one.lower(): one for one in folders(path)}.values()])
    with pytest.raises(ConnectorError, match="DELIVERY-027 .*'key=[aA]'.*folder of another text.*tells case"):
        deliver(divided, lake, until_caught_up=True)
    monkeypatch.undo()
    deliver(divided, lake, until_caught_up=True)
    read = pq.read_table(tmp_path / "out").to_pydict()
    assert dict(zip(read["key"], read["total"], strict=True)) == small_lake.totals(lake)


@pytest.mark.parametrize("inner", ["inner", "key=a", "key=a/key=b"])
def test_a_folder_within_that_of_a_divided_delivery_is_refused_and_none_of_its_files_goes(
    lake: Lake, tmp_path: Path, inner: str
) -> None:
    out, within = tmp_path / "out", bound(ToFiles(str(tmp_path / "out" / inner), changes=True))
    divided = bound(ToFiles(str(out), changes=True, partition_by="key"))
    for number in (2, 3):
        deliver(within, lake, until_caught_up=True)
        small_lake.batch(lake, number, [row("d", 4, 6 + number)])
    there = {file: file.read_bytes() for file in out.rglob("*.*")}
    assert len(there) == 3
    with pytest.raises(ConnectorError, match=f"DELIVERY-025 .*{inner} in .*out, whose files are divided.*beside"):
        deliver(divided, lake, until_caught_up=True)
    assert {file: file.read_bytes() for file in out.rglob("*.*")} == there
    deliver(within, lake, until_caught_up=True)
    shutil.rmtree(out)
    deliver(divided, lake, until_caught_up=True)
    with pytest.raises(ConnectorError, match=f"DELIVERY-025 .*{inner} in .*out, whose files are divided.*beside"):
        deliver(within, lake, until_caught_up=True)


def test_files_that_others_have_put_beside_the_folders_of_a_division_stay(lake: Lake, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for folder in ("", "copy", "key=a/key=a", "keys=a"):
        (out / folder).mkdir(parents=True, exist_ok=True)
        (out / folder / "0000000009-9.json").touch()
    before = {*out.rglob("*.json")}
    deliver(bound(ToFiles(str(out), format="json", changes=True, partition_by="key")), lake, until_caught_up=True)
    assert before <= {*out.rglob("*.json")}


@pytest.mark.parametrize("columns", [(), ("key",)])
def test_a_folder_stays_divided_as_it_was_at_first(lake: Lake, tmp_path: Path, columns: tuple[str, ...]) -> None:
    def divided(columns: tuple[str, ...]) -> Route:
        return bound(ToFiles(str(tmp_path / "out"), format="json", changes=True, partition_by=columns))

    other = () if columns else ("key",)
    deliver(divided(columns), lake, until_caught_up=True)
    there = {*(tmp_path / "out").rglob("*.json")}
    small_lake.batch(lake, 2, [row("d", 4, 8)])
    with pytest.raises(ConnectorError, match="DELIVERY-026 .*divided.*or remove this one"):
        deliver(divided(other), lake, until_caught_up=True)
    assert {*(tmp_path / "out").rglob("*.json")} == there
    deliver(divided(columns), lake, until_caught_up=True)
    shutil.rmtree(tmp_path / "out")
    deliver(divided(other), lake, until_caught_up=True)
    lines = [json.loads(line) for file in (tmp_path / "out").rglob("0*.json") for line in file.open()]
    assert sorted(line["total"] for line in lines) == [2, 4, 10]


def test_a_delivery_that_was_cut_short_and_goes_on_leaves_no_row_twice(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_TOGETHER", 1)
    monkeypatch.setattr(results, "_ROWS", 1)
    divided = bound(ToFiles(str(tmp_path / "out"), changes=True, partition_by="key"))
    deliver(divided, lake, until_caught_up=True)
    small_lake.batch(lake, 2, [row(key, number, 20 + number) for number, key in enumerate("defg")])
    read, cut = results.Selection.changes, []

    def changes(selection: results.Selection) -> Iterator[Any]:
        for number, changed in enumerate(read(selection)):
            if number == 2 and not cut:
                cut.append(number)
                small_lake.batch(lake, 3, [row("h", 9, 30)])
                raise FileNotFoundError
            yield changed

    monkeypatch.setattr(results.Selection, "changes", changes)
    deliver(divided, lake, until_caught_up=True)
    table = pq.read_table(tmp_path / "out").to_pydict()
    assert cut == [2]
    assert sorted(zip(table["key"], table["total"], strict=True)) == sorted(small_lake.totals(lake).items())


@pytest.mark.parametrize("columns", [(), ("key",)])
def test_files_in_a_bucket_and_one_whose_files_are_removed_meanwhile_is_filled_anew(
    lake: Lake,
    s3: Server,
    s3_proxy: Proxy,
    columns: tuple[str, ...],
) -> None:
    out, told, stop = f"{s3.bucket()}/out", list[str](), threading.Event()
    written = bound(ToFiles(out, changes=True, partition_by=columns))
    system, path = storage.file_system(out)
    seen = list[Delivery]()

    def then(delivery: Delivery) -> None:
        seen.append(delivery)
        if len(seen) == 2:
            system.delete_dir(path)
        if len(seen) == 4:
            stop.set()
        small_lake.batch(lake, 1 + len(seen), [row(f"k{len(seen)}", 4, 20 + len(seen))])

    deliver(written, lake, stop=stop, on_delivery=then, on_wait=told.append)
    names = {file.base_name for file in system.get_file_info(FileSelector(path, recursive=True))}
    assert names == {MANIFEST, "0000000000-3.parquet", "0000000001-4.parquet"}
    assert told == [f"waiting: delivery 'totals_to_files': the folder {out} was removed", ""]
    assert [one.whole for one in seen] == [True, False, True, False]


def test_files_whose_manifest_is_gone_stay_until_all_results_are_there_anew(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, written = tmp_path / "out", bound(ToFiles(str(tmp_path / "out"), changes=True))
    deliver(written, lake, until_caught_up=True)
    small_lake.batch(lake, 2, [row("d", 4, 8)])
    deliver(written, lake, until_caught_up=True)
    (out / MANIFEST).unlink()
    seen = list[set[str]]()
    write = files.FilesSink._write

    def watched(*arguments: Any) -> None:
        seen.append({file.name for file in out.glob("0*")})
        write(*arguments)

    monkeypatch.setattr(files.FilesSink, "_write", watched)
    deliver(written, lake, until_caught_up=True)
    assert seen == [{"0000000001-2.parquet"}]
    assert [file.name for file in out.glob("0*")] == ["0000000000-2.parquet"]


@pytest.mark.parametrize("divided", [False, True])
def test_a_file_that_a_killed_delivery_has_left_does_not_count_once_its_number_has_other_changes(
    lake: Lake, tmp_path: Path, divided: bool
) -> None:
    folder = tmp_path / "out"
    kind = "divided" if divided else "files"
    assert process(lake, TOTALS, kind, str(folder), at="delivery.before_position") != 0
    left = {file.name for file in folder.rglob("0*.json")}
    small_lake.batch(lake, 2, [row("d", 4, 8)])
    assert process(lake, TOTALS, kind, str(folder)) == 0
    counted = {file.name for file in folder.rglob("0*.json")}
    assert {name[:10] for name in left | counted} == {"0000000000"}
    assert len(left) == len(counted) == 1
    lines = [json.loads(line) for file in folder.rglob("0*.json") for line in file.read_text().splitlines()]
    assert sorted(line["total"] for line in lines) == [2, 4, 10]


def test_a_folder_of_another_output_is_refused(lake: Lake, tmp_path: Path) -> None:
    deliver(bound(ToFiles(str(tmp_path / "out"), changes=True)), lake, until_caught_up=True)
    late = bound(ToFiles(str(tmp_path / "out"), output="late"))
    with pytest.raises(ConnectorError, match="DELIVERY-022 .*delivery 'totals_to_files' fills.*a folder of its own"):
        deliver(late, lake, until_caught_up=True)
    manifest = tmp_path / "out" / MANIFEST
    content = json.loads(manifest.read_text())
    assert content.pop("owner") == {"delivery": "totals_to_files", "lake": lake.root}
    manifest.write_text(json.dumps(content))  # as earlier releases have it
    with pytest.raises(ConnectorError, match="DELIVERY-022 .*the results of 'totals'.*a folder of its own"):
        deliver(late, lake, until_caught_up=True)
    deliver(bound(ToFiles(str(tmp_path / "out"), changes=True)), lake, until_caught_up=True)


def test_files_of_revised_results_need_changes() -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-331 delivery 'totals_to_files'"):
        bound(ToFiles("out"))
    assert routes(PLAIN, [ToFiles("out")], "test")[0].delivery.located(Path("/shop")) == ToFiles("/shop/out")


def test_a_folder_that_cannot_be_written_is_waited_for(lake: Lake, tmp_path: Path) -> None:
    folder, told, stop = tmp_path / "out", list[str](), threading.Event()
    folder.write_text("a file is in the way")

    def clear(text: str) -> None:
        told.append(text)
        if folder.is_file():
            folder.unlink()

    written = bound(ToFiles(str(folder), changes=True))
    deliver(written, lake, stop=stop, on_wait=clear, on_delivery=lambda _: stop.set())
    assert told[0].startswith("waiting: delivery 'totals_to_files': expected a folder that takes files")
    assert told[1:] == [""]


# ---- topics


def last_values(broker: Broker, topic: str) -> dict[str, int]:
    """Key -> total, as a compacted topic has them."""
    last = {message.key(): message.value() for message in committed(broker, topic)}
    return {json.loads(key)["key"]: json.loads(value)["total"] for key, value in last.items() if value is not None}


def test_a_topic_has_keys_values_tombstones_and_headers(lake: Lake, broker: Broker) -> None:
    topic = broker.topic(1)
    sent = route(TOTALS, "kafka", broker.servers, topic)
    deliver(sent, lake, until_caught_up=True)
    small_lake.batch(lake, 2, [row("b", 2, 7, RETRACTION), row("d", 4, 8)])
    deliver(sent, lake, until_caught_up=True)
    assert last_values(broker, topic) == small_lake.totals(lake) == {"a": 10, "d": 4}
    gone = next(message for message in committed(broker, topic) if message.value() is None)
    assert dict(gone.headers()) == {"floodmark-output": b"totals", "floodmark-commit": b"2", "floodmark-number": b"1"}


@pytest.mark.soak
def test_without_transactions_messages_that_are_sent_again_have_the_headers_that_they_had(
    lake: Lake, broker: Broker
) -> None:
    topic = broker.topic(1)
    for point in ("delivery.before_position", "delivery.after_commit", "delivery.before_note"):
        assert process(lake, TOTALS, "messages", broker.servers, topic, at=point) != 0
        small_lake.batch(lake, 2, [row("d", 4, 8)])
    assert process(lake, TOTALS, "messages", broker.servers, topic) == 0
    named = {
        (message.key(), *map(bytes, dict(message.headers()).values())): message.value()
        for message in committed(broker, topic)
    }
    assert len(named) < len(committed(broker, topic))
    assert all(
        named[(message.key(), *dict(message.headers()).values())] == message.value()
        for message in committed(broker, topic)
    )
    assert last_values(broker, topic) == small_lake.totals(lake)


def test_a_position_that_the_brokers_have_forgotten_sends_all_anew_and_takes_back_what_is_gone(
    lake: Lake, broker: Broker
) -> None:
    topic = broker.topic(1)
    sent = route(TOTALS, "kafka", broker.servers, topic)
    deliver(sent, lake, until_caught_up=True)
    broker.admin.delete_consumer_groups([f"floodmark-delivery-{sent.name}"])[f"floodmark-delivery-{sent.name}"].result()
    broker.put(topic, [(0, b'{"total": 7}')], key=b'{"key": "of somebody else"}')
    small_lake.batch(lake, 2, [row("b", 2, 7, RETRACTION)])
    seen: list[Delivery] = []
    deliver(sent, lake, until_caught_up=True, on_delivery=seen.append)
    assert [one.whole for one in seen] == [True]
    assert small_lake.totals(lake) == {"a": 10}
    assert last_values(broker, topic) == {"a": 10, "of somebody else": 7}


def test_a_second_process_fences_the_first(lake: Lake, broker: Broker) -> None:
    topic = broker.topic(1)
    sent, stop = route(TOTALS, "kafka", broker.servers, topic), threading.Event()

    def elsewhere(_: Delivery) -> None:
        sink = sent.delivery.sink(sent)
        sink.prepare()
        sink.claim(lake.root)
        sink.close()
        small_lake.batch(lake, 2, [row("d", 4, 8)])

    with pytest.raises(LifecycleError, match="LIFECYCLE-240 delivery 'totals_to_kafka': expected to be the only one"):
        deliver(sent, lake, stop=stop, on_delivery=elsewhere)
    deliver(sent, lake, until_caught_up=True)
    assert last_values(broker, topic) == small_lake.totals(lake)


def test_a_delivery_that_takes_longer_than_its_transaction_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fenced:
        """A producer whose transaction the brokers have ended meanwhile."""

        def begin_transaction(self) -> None:
            clock.append(clock[-1] + 600)

        def produce(self, *_: object, **__: object) -> None:
            raise KafkaException(KafkaError(KafkaError._FENCED))

        def poll(self, _: float) -> None:
            pass

        def abort_transaction(self, _: float) -> None:
            pass

    clock, sent = [0.0], bound(ToKafka("sales", "broker:9092"))
    monkeypatch.setattr(kafka, "time", SimpleNamespace(monotonic=lambda: clock[-1]))
    sink, position = kafka.KafkaSink(sent.delivery, sent), Delivered(table="t", version=0, number=0)
    sink._producer, sink._consumer = Fenced(), object()
    changes = Changes(
        batches=iter(()), documents=iter([Documents([b"key"], [b"value"])]), position=position, before=None
    )
    with pytest.raises(ConnectorError, match="DELIVERY-029 .*within 600 seconds.*transaction_seconds=.*restart"):
        sink.deliver(changes, 0)
    sink._producer = None


def test_another_lake_is_refused_and_does_not_stop_the_first(lake: Lake, broker: Broker, tmp_path: Path) -> None:
    topic, fork, stop = broker.topic(1), small_lake.make(tmp_path / "fork"), threading.Event()
    sent, deliveries = route(TOTALS, "kafka", broker.servers, topic), list[Delivery]()

    def elsewhere(delivery: Delivery) -> None:
        deliveries.append(delivery)
        if len(deliveries) == 2:
            stop.set()
            return
        refused = (
            f"LIFECYCLE-241 .*got lake {lake.root}.*kafka-consumer-groups .*--group floodmark-delivery-{sent.name}"
        )
        with pytest.raises(LifecycleError, match=refused):
            deliver(sent, fork, until_caught_up=True)
        small_lake.batch(lake, 2, [row("d", 4, 8)])

    deliver(sent, lake, stop=stop, on_delivery=elsewhere)
    assert last_values(broker, topic) == small_lake.totals(lake) == {"a": 10, "b": 2, "d": 4}


def test_a_topic_that_is_not_there_is_told(lake: Lake, broker: Broker) -> None:
    with pytest.raises(ConnectorError, match="DELIVERY-009 .*the topic 'no_such_topic'.*cleanup.policy=compact"):
        deliver(route(TOTALS, "kafka", broker.servers, "no_such_topic"), lake, until_caught_up=True)


def test_a_message_that_is_too_large_stops_the_delivery_until_larger_ones_are_let_through(
    lake: Lake, broker: Broker
) -> None:
    name, limit = "x" * 3_000_000, {"message.max.bytes": 9_000_000}
    small_lake.batch(lake, 2, [row(name, 4, 8)])
    topic = broker.topic(1)

    def sent(**settings: Any) -> Route:
        return bound(ToKafka(topic, broker.servers, **settings))

    refused = "DELIVERY-008 delivery 'totals_to_kafka'.*too large.*message.max.bytes.*floodmark restart totals_to_kafka"
    for settings in ({}, {"properties": limit}):  # the library, and then the topic
        with pytest.raises(ConnectorError, match=refused):
            deliver(sent(**settings), lake, until_caught_up=True)
        assert committed(broker, topic) == []
    topic = broker.topic(1, max_message_bytes=9_000_000)
    deliver(sent(properties=limit, name="larger"), lake, until_caught_up=True)
    assert last_values(broker, topic) == small_lake.totals(lake)


def test_brokers_that_are_away_at_the_start_are_waited_for(
    lake: Lake, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "_ANSWER_SECONDS", 2.0)
    topic, stop, told = broker.topic(1), threading.Event(), list[str]()
    broker.kill()
    with pytest.raises(ConnectorError, match="DELIVERY-001 delivery 'totals_to_kafka'.*an answer of the brokers"):
        deliver(route(TOTALS, "kafka", broker.servers, topic), lake, until_caught_up=True)

    def wait(text: str) -> None:
        told.append(text)
        if not broker.alive:
            broker.start()

    try:
        deliver(
            route(TOTALS, "kafka", broker.servers, topic),
            lake,
            stop=stop,
            on_wait=wait,
            on_delivery=lambda _: stop.set(),
        )
    finally:
        wait("")
    assert told[0].startswith("waiting: delivery 'totals_to_kafka': expected an answer of the brokers, got ")
    assert last_values(broker, topic) == small_lake.totals(lake)


@pytest.mark.soak
def test_a_broker_that_is_killed_in_the_middle_is_waited_for(lake: Lake, broker: Broker) -> None:
    topic, stop, told, seen = broker.topic(1), threading.Event(), list[str](), list[Delivery]()
    sent = route(TOTALS, "kafka", broker.servers, topic)

    def then(delivery: Delivery) -> None:
        seen.append(delivery)
        if len(seen) == 1:
            broker.kill()
            small_lake.batch(lake, 2, [row("d", 4, 8)])
        else:
            stop.set()

    def wait(text: str) -> None:
        told.append(text)
        if not broker.alive:
            broker.start()

    deliver(sent, lake, stop=stop, on_delivery=then, on_wait=wait)
    assert told[0].startswith("waiting: delivery 'totals_to_kafka': expected an answer of the brokers, got ")
    assert last_values(broker, topic) == small_lake.totals(lake)
    assert len(committed(broker, topic)) == 3
