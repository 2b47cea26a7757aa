"""Calls of another system, without an engine: what may be declared, how calls are made, and how answers are recorded."""

from __future__ import annotations

import asyncio
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from events import START, Event
from s3_server import Plan

import floodmark as fm
from floodmark.compiler.explain import explain
from floodmark.compiler.lineage import lineage
from floodmark.core.errors import CapabilityError, DefinitionError, UserCodeError
from floodmark.core.time import to_ms
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.answers import RecordedAnswers, set_aside
from floodmark.lake.stream.lookups import answers_of as looked_up
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.semantics.kernels.calls import answer_schema, called
from floodmark.semantics.kernels.requests import Question, asked
from floodmark.spec.values.schema import FAILED, MARKER, RETRACTION, ROW
from floodmark.testing import IN_MEMORY


class Answer(fm.Contract):
    """An answer."""

    answer: int


def rows(count: int) -> list[dict]:
    """Events a second apart."""
    return [{"at": START + timedelta(seconds=n), "key": "ab"[n % 2], "value": n} for n in range(count)]


def step_of(function, schema=None, **settings):
    """The step of a call."""

    @fm.operator(name="asking")
    def asking(events: fm.Stream[Event]) -> fm.Stream:
        return events.call(function, schema, **settings)

    return asking.calls[0]


async def turns(count: int) -> None:
    """Let the loop turn so often."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
def over():
    """Set when the test ends: until then a function of the test may wait for it, as one that does not return."""
    ended = threading.Event()
    yield ended
    ended.set()


def replies(function, count: int, **settings) -> dict[int, object]:
    """Value -> reply of a function with an answer."""
    questions = [Question(n.to_bytes(16, "big"), {"value": n}, n) for n in range(count)]
    portions = list(asked(step_of(function, Answer, **settings), questions))
    return {question.row["value"]: reply for portion in portions for question, reply in portion}


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError(), "cancelled, by code of its own|CancelledError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (StopIteration(), "StopIteration"),
    ],
)
def test_what_would_end_the_loop_fails_its_call_alone(raised: BaseException, message: str) -> None:
    async def ends(row):
        if row["value"] == 1:
            raise raised
        return Answer(answer=row["value"])

    def ends_in_a_thread(row):
        return asyncio.run(ends(row)) if not isinstance(raised, StopIteration) else _raise(row, raised)

    for function in (ends, ends_in_a_thread):
        answered = replies(function, 3, retries=0, timeout="2 minutes", on_error="quarantine")
        assert isinstance(answered[1], UserCodeError)
        assert re.search(f"USER-009.*({message})", str(answered[1]))
        assert answered[0] == [{"answer": 0}]
        assert answered[2] == [{"answer": 2}]


def test_an_answer_that_is_too_large_a_number_fails_its_call_and_a_class_of_pythons_own_is_refused() -> None:
    @fm.operator
    def asking(events: fm.Stream[Event]) -> fm.Stream:
        return events.call(
            lambda row: Answer(answer=2 ** (62 + row["value"])), Answer, on_error="quarantine", retries=0
        )

    done = IN_MEMORY[0](asking, {"events": rows(2)})
    assert [row["answer"] for row in done[""]] == [2**62]
    assert "too large" in done["quarantine"][0]["reason"]
    with pytest.raises(DefinitionError, match="DEFINITION-051.*whose arguments are not known"):
        step_of(dict, Answer)


def _raise(row, raised):
    if row["value"] == 1:
        raise raised
    return Answer(answer=row["value"])


async def twice(row) -> Answer:
    """An answer."""
    return Answer(answer=2 * row["value"])


@pytest.mark.parametrize("run", IN_MEMORY, ids=str)
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.feature("A1")
def test_answers_come_in_the_order_of_their_rows(run, ordered):
    async def later(row):
        await asyncio.sleep(0.001 * (7 * row["value"] % 10))
        if row["value"] % 4 == 0:
            return None
        return [{"answer": row["value"]}, Answer(answer=-row["value"])][: 1 + row["value"] % 2]

    @fm.operator
    def asking(events: fm.Stream[Event]) -> fm.Stream:
        return events.call(later, Answer, ordered=ordered, concurrency=8)

    expected = sorted([n for n in range(30) if n % 4] + [-n for n in range(30) if n % 2])
    assert [row["answer"] for row in run(asking, {"events": rows(30)})[""]] == expected


def test_an_ordered_call_waits_for_the_row_before_it_and_an_unordered_one_does_not():
    def starts(*, ordered: bool) -> list[int]:
        began: list[int] = []
        enough = asyncio.Event()

        async def slow_first(row):
            began.append(row["value"])
            if len(began) == (4 if ordered else 40):
                enough.set()
            if row["value"] == 0:
                await enough.wait()
                await turns(20)  # in which more could begin
            return {"answer": len(began)}

        return [
            reply[0]["answer"]
            for value, reply in sorted(replies(slow_first, 40, concurrency=4, ordered=ordered).items())
        ]

    assert starts(ordered=True)[0] == 4
    assert starts(ordered=False)[0] == 40


def test_at_most_concurrency_calls_are_made_at_a_time_by_coroutines_and_by_threads():
    def busiest(function) -> int:
        assert len(replies(function, 60, concurrency=7, ordered=False)) == 60
        return most[0]

    now, most, lock, full = [0], [0], threading.Lock(), threading.Event()

    async def coroutine(row):
        now[0] += 1
        most[0] = max(most[0], now[0])
        await asyncio.sleep(0.002)
        now[0] -= 1
        return {"answer": 1}

    def plain(row):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
            if now[0] == 7:
                full.set()
        assert full.wait(60), "there are never as many as may be"
        with lock:
            now[0] -= 1
        return {"answer": 1}

    assert busiest(coroutine) == 7
    most[0] = 0
    assert busiest(plain) == 7


def test_a_call_that_fails_is_made_again_with_the_same_key():
    seen: dict[int, list[fm.Request]] = {}

    async def third_time(row, request):
        seen.setdefault(row["value"], []).append(request)
        if request.attempt < 2:
            raise ConnectionError
        return {"answer": row["value"]}

    assert replies(third_time, 3, retries=2) == {n: [{"answer": n}] for n in range(3)}
    for requests in seen.values():
        assert [request.attempt for request in requests] == [0, 1, 2]
        assert len({request.key for request in requests}) == 1


@pytest.mark.parametrize("plain", [False, True])
def test_a_call_that_does_not_return_in_time_is_named(plain, over):
    async def sleeping(row):
        await asyncio.sleep(3600)

    def waiting(row):
        over.wait(3600)

    settings = {"timeout": "50 ms", "retries": 1, "on_error": "quarantine"}
    (reply,) = replies(waiting if plain else sleeping, 1, **settings).values()
    assert isinstance(reply, UserCodeError)
    assert reply.code == "USER-009"
    assert reply.got == "TimeoutError: no answer within 50 ms"
    assert "2 attempts" in reply.expected


def test_a_coroutine_that_ignores_its_cancellation_is_not_waited_for(over):
    ended: list[bool] = []

    async def stubborn(row):
        for _ in range(1000):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.3)
            if over.is_set():
                break
        ended.append(True)

    (reply,) = replies(stubborn, 1, timeout="50 ms", retries=0, on_error="quarantine").values()
    assert isinstance(reply, UserCodeError)
    assert not ended


def test_a_coroutine_that_blocks_the_loop_is_refused_and_the_next_call_has_a_loop_of_its_own(monkeypatch, over):
    async def blocking(row):
        over.wait(3600)  # what is refused
        return {"answer": 1}

    with monkeypatch.context() as impatient:
        impatient.setattr("floodmark.semantics.kernels.requests._BEAT_SECONDS", 0.2)
        impatient.setattr("floodmark.semantics.kernels.requests._PATIENCE_SECONDS", 0.2)
        with pytest.raises(UserCodeError, match=r"USER-010 call 'blocking': expected a coroutine that awaits"):
            replies(blocking, 1, timeout="50 ms")
    assert replies(twice, 1) == {0: [{"answer": 0}]}


def test_threads_that_hang_end_the_run_once_they_are_twice_the_concurrency(over):
    def hanging(row):
        over.wait(3600)

    with pytest.raises(UserCodeError, match=r"USER-011 call 'hanging'.*4 calls that do not return"):
        replies(hanging, 20, timeout="20 ms", retries=0, concurrency=2, on_error="quarantine")


def test_after_a_failure_that_stops_no_call_begins_and_those_under_way_are_recorded():
    begun: list[int] = []
    failed = asyncio.Event()

    async def fails_at_three(row):
        begun.append(row["value"])
        if row["value"] == 3:
            failed.set()
            raise ValueError(row["value"])
        await failed.wait()
        await turns(20)  # in which the failure is noted
        return {"answer": row["value"]}

    found = replies(fails_at_three, 100, retries=0, concurrency=6)
    assert sorted(found) == sorted(begun) == list(range(6))


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (3, "it returned a int; expected a row, None or a list of rows"),
        ("text", "it returned a str"),
        ({"nope": 1}, "'nope' is no column"),
        ({"answer": None}, "nothing for 'answer', which is never null"),
        ({"answer": 1.5}, "1.5 is no whole number"),
    ],
)
def test_an_answer_that_is_no_row_of_the_contract_is_set_aside_with_its_reason(returned, reason):
    async def odd(row):
        return returned if row["value"] == 2 else {"answer": row["value"]}

    @fm.operator
    def asking(events: fm.Stream[Event]) -> fm.Stream:
        return events.call(odd, Answer, retries=0, on_error="quarantine")

    tables = IN_MEMORY[0](asking, {"events": rows(4)})
    assert [row["answer"] for row in tables[""]] == [0, 1, 3]
    (aside,) = tables["quarantine"]
    assert aside["step"] == "call 'odd'"
    assert reason in aside["reason"]


@pytest.mark.feature("A1")
def test_with_cache_equal_values_of_a_day_are_asked_about_once_and_the_answer_joins_the_row():
    calls: list[tuple[str, int]] = []

    class Named(fm.Contract):
        name: str

    async def name(row, request):
        calls.append((*row.values(), request.timestamp))
        return None if row["key"] == "b" else {"name": row["key"] * 3}

    @fm.operator
    def named(events: fm.Stream[Event]) -> fm.Stream:
        return events.call(name, Named, cache="key", cache_for="1 hour")

    both = [{"at": START + timedelta(minutes=20 * n), "key": "ab"[n % 2], "value": n} for n in range(6)]
    assert IN_MEMORY[0](named, {"events": both})[""] == [
        {"at": one["at"], "key": "a", "value": one["value"], "name": "aaa"} for one in both[::2]
    ]
    hours = [to_ms(START), to_ms(START) + 3_600_000]
    assert sorted(calls) == [(key, hour) for key in "ab" for hour in hours]


def at_all(function, schema=Answer, **settings):
    """A call over events."""
    return lambda: step_of(function, schema, **settings)


@pytest.mark.parametrize(
    ("define", "code", "words"),
    [
        (at_all(twice, None, retries=-1), "DEFINITION-055", "retries=-1"),
        (at_all(twice, concurrency=0), "DEFINITION-055", "concurrency=0"),
        (at_all(twice, timeout="0 s"), "DEFINITION-055", "timeout=0 s"),
        (at_all(twice, on_error="skip"), "DEFINITION-055", "'skip'"),
        (at_all(lambda row: None, None), "DEFINITION-051", "the contract of its answers"),
        (at_all(lambda: None), "DEFINITION-051", "one with 0 arguments"),
        (at_all(3), "DEFINITION-051", "a function that returns its answer"),
        (at_all(twice, cache="kee"), "DEFINITION-022", "Did you mean 'key'?"),
        (at_all(twice, Event, cache="key"), "DEFINITION-050", "at, key, value"),
    ],
)
def test_what_cannot_be_asked_is_refused(define, code, words):
    with pytest.raises(DefinitionError, match=code) as raised:
        define()
    assert words in str(raised.value)


def test_an_asynchronous_generator_is_refused():
    async def generates(row):
        yield {"answer": 1}

    with pytest.raises(DefinitionError, match="an asynchronous generator"):
        step_of(generates, Answer)


def test_how_calls_are_made_is_not_part_of_the_version_and_what_they_answer_is():
    def version(**settings) -> str:
        @fm.operator(name="asking")
        def asking(events: fm.Stream[Event]) -> fm.Stream:
            return events.call(twice, **settings)

        assert not asking.warnings
        return asking.version

    assert version() == version(concurrency=3, timeout="1 s", retries=9, ordered=False)
    assert len({version(), version(uid="other"), version(version="2"), version(on_error="quarantine")}) == 4


def test_explain_says_how_calls_are_made_and_lineage_what_they_read():
    class Named(fm.Contract):
        name: str

    async def name(row):
        return None

    @fm.operator
    def named(events: fm.Stream[Event]) -> fm.Stream:
        return events.call(name, Named, cache="key", cache_for="1 hour", retries=1)

    text, _ = explain(named)
    assert (
        "100 calls at a time, each for at most 30 seconds, 1 retries; once per key and 1 hour; answers are recorded as name-"
        in text
    )
    origins = lineage(named, {"events": "at"})["named"]
    assert origins["name"] == {("events", "key")}
    assert origins["value"] == {("events", "value")}


def test_answers_belong_to_the_code_unless_a_version_names_them():
    async def thrice(row) -> Answer:
        return Answer(answer=3 * row["value"])

    assert step_of(twice, uid="x").answers != step_of(thrice, uid="x").answers
    assert step_of(twice, uid="x", version="1").answers == step_of(thrice, uid="x", version="1").answers
    assert step_of(twice, uid="x", version="1").answers != step_of(twice, uid="x", version="2").answers


def table(step, numbers, answer) -> pa.Table:
    """Answers about numbers, an hour each ten."""
    entries = [
        {"key": n.to_bytes(16, "big"), "time": n // 10 * 3_600_000, "rows": [{"answer": answer}], "reason": None}
        for n in numbers
    ]
    return pa.Table.from_pylist(entries, schema=answer_schema(step))


def answers_of(found: pa.Table) -> dict[int, int]:
    """Number -> answer."""
    return {int.from_bytes(row["key"], "big"): row["rows"][0]["answer"] for row in found.to_pylist()}


def known(store: RecordedAnswers, numbers) -> dict[int, int]:
    """The recorded answers about numbers."""
    return answers_of(store.known([n.to_bytes(16, "big") for n in numbers], [n // 10 * 3_600_000 for n in numbers]))


def _in_a_bucket(request: pytest.FixtureRequest) -> str:
    """A folder of a bucket, whose store fails at times and whose answers get lost at times."""
    request.getfixturevalue("s3_proxy").plan(Plan(seed=1, share=0.05))
    return f"{request.getfixturevalue('s3').bucket()}/answers"


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_the_first_answer_to_a_question_is_the_answer_in_every_process(tmp_path, kind, request):
    step, rounds = step_of(twice), range(25 if kind == "folder" else 5)
    numbers = range(rounds[-1] + 12)
    location = str(tmp_path) if kind == "folder" else _in_a_bucket(request)
    stores = [RecordedAnswers((location,), answer_schema(step)) for _ in range(8)]

    def write(writer: int) -> list[dict[int, int]]:
        return [answers_of(stores[writer].record(table(step, range(n, n + 12), writer))) for n in rounds]

    with ThreadPoolExecutor(8) as threads:
        recorded = list(threads.map(write, range(8)))
    final = known(RecordedAnswers((location,), answer_schema(step)), numbers)
    assert sorted(final) == list(numbers)
    for of_writer in recorded:
        for one in of_writer:
            assert one == {n: final[n] for n in one}
    assert all(known(store, numbers) == final for store in stores)


def test_the_draft_of_a_killed_writer_stops_no_reader(tmp_path):
    step = step_of(twice)
    store = RecordedAnswers((str(tmp_path),), answer_schema(step))
    store.record(table(step, [10_000], 0))
    (hour,) = (path for path in tmp_path.iterdir() if path.is_dir())
    for draft in ("answers-000000001.arrow", "merged-000000001.arrow"):
        (hour / f"{draft}.{'0' * 32}.draft").write_bytes(b"half")
    others = RecordedAnswers((str(tmp_path),), answer_schema(step))
    assert len(answers_of(others.record(table(step, [10_000, 10_001], 0)))) == 2


def test_a_forgetting_that_an_earlier_release_has_begun_copies_no_answers_again(tmp_path):
    lake = Lake(str(tmp_path))
    now, before = (Path(lake.internal(name, "asked")) for name in ("answers", "answers_before"))
    for folder, name in ((now, "answers-000000000.arrow"), (before, "whole")):
        folder.mkdir(parents=True)
        (folder / name).write_bytes(b"")
    set_aside(lake, "asked")
    assert sorted(path.name for path in before.iterdir()) == ["done", "whole"]
    assert not now.exists()


def test_what_a_killed_merge_has_left_goes_with_the_next(tmp_path):
    step = step_of(twice)
    store = RecordedAnswers((str(tmp_path),), answer_schema(step))
    for n in range(3):
        store.record(table(step, [10_000 + n], n).set_column(1, "time", pa.array([0])))
    hour = next(path for path in tmp_path.iterdir() if path.is_dir())
    left = {path: path.read_bytes() for path in hour.iterdir()}
    for again in range(2):
        store.merge(str(hour))
        assert [path.name for path in hour.iterdir()] == ["merged-000000002.arrow"], again
        for path, content in left.items():  # as if it had been killed before it removed them
            path.write_bytes(content)
    assert (
        RecordedAnswers((str(tmp_path),), answer_schema(step))
        .known([(10_000 + n).to_bytes(16, "big") for n in range(3)], [0] * 3)
        .num_rows
        == 3
    )


def test_files_of_an_hour_are_merged_and_answers_stay(tmp_path):
    step = step_of(twice)
    store = RecordedAnswers((str(tmp_path),), answer_schema(step))
    for n in range(100):
        store.record(table(step, [10_000 + n], n).set_column(1, "time", pa.array([0])))
    (hour,) = tmp_path.iterdir()
    assert len(list(hour.iterdir())) < 40
    again = RecordedAnswers((str(tmp_path / "fork"), str(tmp_path)), answer_schema(step))
    found = again.known([(10_000 + n).to_bytes(16, "big") for n in range(100)], [0] * 100)
    assert sorted(row["rows"][0]["answer"] for row in found.to_pylist()) == list(range(100))


def test_odd_values_are_one_question_each_and_come_back_as_they_were(tmp_path):
    class Odd(fm.Contract):
        at: fm.EventTime
        number: float | None
        whole: int
        amount: Decimal
        tags: list[str]
        labels: dict[str, int]

    class Echo(fm.Contract):
        number: float | None
        whole: int
        amount: Decimal
        tags: list[str]
        labels: dict[str, int]

    calls = []

    async def echo(row):
        calls.append(row)
        return {name: value for name, value in row.items() if name != "at"}

    @fm.operator(name="echoes")
    def echoes(odd: fm.Stream[Odd]) -> fm.Stream:
        return odd.call(echo, Echo)

    step = echoes.calls[0]
    numbers = [float("nan"), float("inf"), -0.0, None, 1.5]
    values = [
        {
            "at": START,
            "number": number,
            "whole": 2**63 - 1,
            "amount": Decimal("9" * 38),
            "tags": ["a"],
            "labels": {"b": 1},
        }
        for number in numbers
    ]
    rows_in = pa.Table.from_pylist(values, schema=arrow_schema(step.parent.schema))
    for _ in range(2):
        store = RecordedAnswers((str(tmp_path),), answer_schema(step))
        mapped = called(step, rows_in, [0] * 5, [to_ms(START)] * 5, store, looked_up)
        assert str(mapped.rows.to_pylist()) == str(rows_in.drop_columns(["at"]).to_pylist())
    assert len(calls) == 5


class Rate(fm.Contract):
    """A row of a lookup table."""

    key: str
    value: float
    rate: str | None


@pytest.mark.parametrize("kind", ["inner", "left"])
@pytest.mark.parametrize("on", [{"key": "key"}, {"key": "key", "value": "value"}])
def test_rows_that_are_answered_together_are_answered_as_one_by_one(tmp_path: Path, kind, on) -> None:
    """Markers and rows that failed before are not asked about, whatever is in them; -0.0 is 0.0."""
    (tmp_path / "rates.csv").write_text("key,value,rate\na,0,x\na,0,\nb,1,y\nc,1,z\n", "utf-8")
    table = fm.LookupTable("rates", contract=Rate, path=tmp_path / "rates.csv", holds="1 minute")

    @fm.operator
    def rated(events: fm.Stream[Event]) -> fm.Stream:
        return events.lookup(table, on=on, kind=kind, columns=["rate"])

    step = rated.calls[0]
    drawn = random.Random(3)
    values = [
        {
            "at": START,
            "key": drawn.choice([None, "a", "b", "?"]),
            "value": drawn.choice([0, 1, None]),
            "_key_0": drawn.choice([None, "a", "a", "b", "?"]),
            "_key_1": drawn.choice([None, 0.0, -0.0, 1.0, float("nan")]),
        }
        for _ in range(60)
    ]
    rows_in = pa.Table.from_pylist(values, schema=arrow_schema(step.parent.schema))
    kinds = [drawn.choice([ROW, ROW, RETRACTION, MARKER, FAILED]) for _ in values]
    times = [to_ms(START) + drawn.randrange(200_000) for _ in values]
    together = called(step, rows_in, kinds, times, None, looked_up)
    alone = [
        called(step, rows_in.slice(n, 1), kinds[n : n + 1], times[n : n + 1], None, looked_up)
        for n in range(len(values))
    ]
    assert repr(together.rows.to_pylist()) == repr([row for one in alone for row in one.rows.to_pylist()])
    assert together.origin.to_pylist() == [n for n, one in enumerate(alone) for _ in one.origin]
    assert not together.failures
    none = called(step, rows_in.slice(0, 0), [], [], None, looked_up)
    assert (none.rows.num_rows, none.rows.schema) == (0, together.rows.schema)


def test_a_row_without_an_answer_is_set_aside_with_its_own_values_and_the_retraction_of_one_is_left_out(over) -> None:
    async def odd(row, request):
        if row["value"] % 2:
            message = "odd"
            raise ValueError(message)
        return [{"answer": row["value"]}] * row["value"]

    step = step_of(odd, Answer, on_error="quarantine", retries=0)
    numbers, kinds = [1, 0, 2, 3, 1, 2], [ROW, ROW, ROW, MARKER, RETRACTION, RETRACTION]
    values = [{"at": START, "key": "a", "value": number} for number in numbers]
    rows_in = pa.Table.from_pylist(values, schema=arrow_schema(step.parent.schema))
    mapped = called(step, rows_in, kinds, [to_ms(START)] * 6, None, looked_up)
    assert [row["answer"] for row in mapped.rows.to_pylist()] == [None, 2, 2, None, 2, 2]
    assert mapped.origin.to_pylist() == [0, 2, 2, 3, 5, 5]
    ((position, why),) = mapped.failures.items()
    assert (position, why["reason"], '"value": 1' in why["given"]) == (0, "ValueError: odd", True)


async def _asks(row, request):
    return {"answer": len(row)}


def test_a_call_behind_results_that_are_taken_back_at_another_time_is_refused() -> None:
    """The retraction would be another question, whose answer may be another one; behind revised windows it is the same question."""

    def behind(results):
        @fm.operator(name="asking")
        def asking(events: fm.Stream[Event]) -> fm.Stream:
            return results(events.key_by("key")).call(_asks, Answer)

        return asking

    with pytest.raises(
        CapabilityError, match=r"CAPABILITY-098 .*before the call 'asks' whose retractions .*Call before the step"
    ):
        behind(lambda keyed: keyed.rolling(total=fm.sum("value")))
    revised = behind(
        lambda keyed: keyed.window(fm.Tumbling("1 hour"), allowed_lateness="1 hour").aggregate(n=fm.count())
    )
    assert [call.uid for call in revised.calls] == ["asks"]
