"""The plan: an edit each, with what it asks for; and on the kernels themselves, what would come of it without a plan."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import pytest

import floodmark as fm
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.lifecycle.plan import Deployed, plan
from floodmark.spec.values.schema import MARKER, ROW
from floodmark.testing.log import Log


class Sale(fm.Contract):
    """A sale."""

    at: fm.EventTime
    shop: str
    town: str = ""
    cents: int = 0
    items: int = 0


class More(Sale):
    """A sale with a column more."""

    voucher: str | None = None


class Strict(Sale):
    """A sale with a column more that must be there."""

    voucher: str


class Priced(fm.Contract):
    """A price."""

    price: float


def priced(pane, rows):
    yield {"price": float(len(rows))}


def repriced(pane, rows):
    yield {"price": float(len(rows) + 1)}


def larger(one, other):
    return one if one["cents"] >= other["cents"] else other


def smaller(one, other):
    return one if one["cents"] <= other["cents"] else other


def split(row):
    yield row


def doubled(row):
    yield {**row, "cents": row["cents"] * 2}


class Total(fm.Aggregate):
    """A sum."""

    type = "bigint"

    def create(self):
        return 0

    def add(self, accumulator, value):
        return accumulator + value

    def merge(self, left, right):
        return left + right

    def result(self, accumulator):
        return accumulator


class Squares(Total):
    """Not a sum."""

    def add(self, accumulator, value):
        return accumulator + value * value


HOUR = fm.Tumbling("1 hour")


def op(
    finish=lambda w: w.aggregate(total=fm.sum("cents")),
    *,
    contract=Sale,
    keys=("shop",),
    window=HOUR,
    before=lambda s: s,
    after=lambda s: s,
    table="sales",
    outputs=None,
    **settings,
):
    source = fm.Source(table, contract=contract, connector=fm.Rows([]), watermark=fm.Ascending())

    @fm.operator(name="takings", inputs={"sales": source})
    def takings(sales):
        result = finish(before(sales).key_by(*keys).window(window, **settings))
        return outputs(result) if outputs else after(result)

    return takings


def stateless(change=lambda s: s, contract=Sale):
    source = fm.Source("sales", contract=contract, connector=fm.Rows([]), watermark=fm.Ascending())

    @fm.operator(name="takings", inputs={"sales": source})
    def takings(sales):
        return change(sales.filter("cents > 0"))

    return takings


def agg(**aggregates):
    return lambda windows: windows.aggregate(**aggregates)


class Running(fm.ProcessFunction):
    """Totals so far."""

    total = fm.ValueState("int")
    late = fm.Timer()

    def on_element(self, row, ctx):
        self.total.update(self.total.get(0) + row["cents"])
        yield {"price": float(self.total.get())}

    def on_timer(self, timer, ctx):
        self.total.clear()


class Documented(Running):
    """The same in other words."""


class Doubled(Running):
    def on_element(self, row, ctx):
        self.total.update(self.total.get(0) + row["cents"] * 2)
        yield {"price": float(self.total.get())}


class Wider(Running):
    total = fm.ValueState("bigint")


class Named(Running):
    total = fm.ValueState("string")


class Migrated(Running):
    total = fm.ValueState("string", version=2, migrate=str)


class Skipping(Running):
    total = fm.ValueState("string", version=3)


class Chained(Running):
    total = fm.ValueState("string", version=3, migrate={2: str, 3: str.strip})


class Fading(Running):
    total = fm.ValueState("int", ttl="1 day")


class Listed(Running):
    total = fm.ListState("int")


class More_(Running):  # noqa: N801 - there is a contract More
    seen = fm.MapState(str, int)


class Clocked(Running):
    late = fm.Timer("processing")


class Scaled(Running):
    def __init__(self, factor):
        self.factor = factor


def process(function, **settings):
    source = fm.Source("sales", contract=Sale, connector=fm.Rows([]), watermark=fm.Ascending())

    @fm.operator(name="takings", inputs={"sales": source})
    def takings(sales):
        return sales.key_by("shop").process(function, schema=Priced, **settings)

    return takings


def joined(upper="1 hour", contract=Sale, change=lambda s: s, swapped=False, **settings):
    sources = {
        name: fm.Source(name, contract=contract, connector=fm.Rows([]), watermark=fm.Ascending())
        for name in ("sales", "web")
    }

    @fm.operator(name="takings", inputs=sources)
    def takings(sales, web):
        sales, web = (web, sales) if swapped else (sales, web)
        other = change(web).select("shop", "at", web_cents="cents")
        found = sales.key_by("shop").interval_join(other.key_by("shop"), "0 s", upper, prefix="web_", **settings)
        return found.select("shop", "cents", "web_web_cents")

    return takings


def paired(kind="inner"):
    sources = {
        name: fm.Source(name, contract=Sale, connector=fm.Rows([]), watermark=fm.Ascending())
        for name in ("sales", "web")
    }

    @fm.operator(name="takings", inputs=sources)
    def takings(sales, web):
        other = web.select("shop", web_cents="cents")
        return sales.select("shop", "cents").key_by("shop").regular_join(other.key_by("shop"), kind=kind)

    return takings


class Rules(fm.BroadcastProcessFunction):
    """Counts no rule."""

    def on_element(self, row, ctx):
        yield {"price": 1.0}

    def on_broadcast(self, row, ctx):
        return ()


class Both(fm.CoProcessFunction):
    """Counts rows of both."""

    def on_left(self, row, ctx):
        yield {"price": 1.0}

    def on_right(self, row, ctx):
        yield {"price": 1.0}


def connected(function, other):
    sources = {
        name: fm.Source(name, contract=Sale, connector=fm.Rows([]), watermark=fm.Ascending())
        for name in ("sales", "web")
    }

    @fm.operator(name="takings", inputs=sources)
    def takings(sales, web):
        return sales.key_by("shop").connect(other(web)).process(function, schema=Priced)

    return takings


def two_inputs(of=lambda sales, web: sales.union(web), after=lambda r: r):
    sources = {
        name: fm.Source(name, contract=Sale, connector=fm.Rows([]), watermark=fm.Ascending())
        for name in ("sales", "web")
    }

    @fm.operator(name="takings", inputs=sources)
    def takings(sales, web):
        return after(of(sales, web).key_by("shop").window(HOUR).aggregate(total=fm.sum("cents")))

    return takings


LATE = {"allowed_lateness": "1 hour"}
EARLY = {"trigger": fm.AfterWatermark().early(fm.AfterCount(5))}


def over_revised(change=lambda s: s):
    """No state, over results that late rows revise."""

    @fm.operator(inputs={"found": op(**LATE)})
    def passed(found):
        return change(found.filter("total > 0"))

    return passed


def euros(found):
    return found.with_columns(euros="total / 100")


EDITS = {
    # the same
    "nothing": (op(), op(), "no-op"),
    "names of variables": (
        op(lambda w: w.aggregate(total=fm.sum("cents"))),
        op(lambda x: x.aggregate(total=fm.sum("cents"))),
        "no-op",
    ),
    "the same span in other words": (op(), op(window=fm.Tumbling("60 minutes")), "no-op"),
    # what Spark accepts and gets wrong
    "sum of another column": (op(), op(agg(total=fm.sum("items"))), "rebuild"),
    "sum becomes max": (op(), op(agg(total=fm.max("cents"))), "rebuild"),
    "a filter before the window": (op(), op(before=lambda s: s.filter("items > 0")), "forward-only"),
    "another key": (op(), op(keys=("town",)), "rebuild"),
    # before the state
    "a filter is gone": (op(before=lambda s: s.filter("cents > 10")), op(), "forward-only"),
    "another condition": (
        op(before=lambda s: s.filter("cents > 10")),
        op(before=lambda s: s.filter("cents > 20")),
        "forward-only",
    ),
    "a column is computed otherwise": (
        op(before=lambda s: s.with_columns(cents="cents * 2")),
        op(before=lambda s: s.with_columns(cents="cents * 3")),
        "forward-only",
    ),
    "a function before the window": (
        op(before=lambda s: s.flat_map(split, Sale)),
        op(before=lambda s: s.flat_map(doubled, Sale)),
        "forward-only",
    ),
    "failures before the window are set aside": (
        op(before=lambda s: s.flat_map(split, Sale)),
        op(before=lambda s: s.flat_map(split, Sale, on_error="quarantine")),
        "stateless change",
    ),
    # the state
    "an aggregate more": (op(), op(agg(total=fm.sum("cents"), n=fm.count())), "rebuild"),
    "an aggregate less": (op(agg(total=fm.sum("cents"), n=fm.count())), op(), "rebuild"),
    "an aggregate under another name": (op(), op(agg(sum=fm.sum("cents"))), "rebuild"),
    "more of the largest": (op(agg(top=fm.top_n("cents", 2))), op(agg(top=fm.top_n("cents", 3))), "rebuild"),
    "the code of an aggregate": (op(agg(total=Total("cents"))), op(agg(total=Squares("cents"))), "rebuild"),
    "a key more": (op(), op(keys=("shop", "town")), "rebuild"),
    "keys in another order": (op(keys=("shop", "town")), op(keys=("town", "shop")), "rebuild"),
    "larger windows": (op(), op(window=fm.Tumbling("2 hours")), "rebuild"),
    "an offset": (op(), op(window=fm.Tumbling("1 hour", offset="5 min")), "rebuild"),
    "windows that slide": (op(), op(window=fm.Sliding("1 hour", "30 min")), "rebuild"),
    "sessions": (op(), op(window=fm.Session("1 hour")), "rebuild"),
    "another gap": (op(window=fm.Session("1 hour")), op(window=fm.Session("2 hours")), "rebuild"),
    "days": (op(), op(window=fm.Calendar("day", "UTC")), "rebuild"),
    "more lateness": (op(), op(allowed_lateness="1 hour"), "forward-only"),
    "less lateness": (op(allowed_lateness="2 hours"), op(allowed_lateness="1 hour"), "forward-only"),
    "a trigger": (op(), op(trigger=fm.AfterWatermark().early(fm.AfterCount(5))), "rebuild"),
    "another trigger": (
        op(window=fm.Global(), trigger=fm.AfterCount(5)),
        op(window=fm.Global(), trigger=fm.AfterCount(6)),
        "rebuild",
    ),
    "an evictor": (
        op(lambda w: w.process(priced, Priced), window=fm.Global(), trigger=fm.AfterCount(5), evictor=fm.KeepLast(5)),
        op(lambda w: w.process(priced, Priced), window=fm.Global(), trigger=fm.AfterCount(5), evictor=fm.KeepLast(6)),
        "rebuild",
    ),
    "discarding": (
        op(trigger=fm.AfterWatermark().early(fm.AfterCount(5))),
        op(trigger=fm.AfterWatermark().early(fm.AfterCount(5)), accumulation="discarding"),
        "rebuild",
    ),
    "processing time": (op(), op(time="processing"), "rebuild"),
    "by event time": (op(window=fm.Session("1 hour")), op(window=fm.Session("1 hour"), order="event_time"), "rebuild"),
    "the code of a window function": (
        op(lambda w: w.process(priced, Priced)),
        op(lambda w: w.process(repriced, Priced)),
        "forward-only",
    ),
    "the code of reduce": (op(lambda w: w.reduce(larger)), op(lambda w: w.reduce(smaller)), "rebuild"),
    "a function in place of aggregates": (
        op(agg(price=fm.mean("cents"))),
        op(lambda w: w.process(priced, Priced)),
        "rebuild",
    ),
    "another uid": (
        op(lambda w: w.aggregate(uid="a", total=fm.sum("cents"))),
        op(lambda w: w.aggregate(uid="b", total=fm.sum("cents"))),
        "compatible state",
    ),
    "late rows are kept": (op(), op(late="side_output"), "stateless change"),
    "late rows are not kept any more": (op(late="side_output"), op(), "stateless change"),
    "failures are set aside": (
        op(lambda w: w.process(priced, Priced)),
        op(lambda w: w.process(priced, Priced), on_error="quarantine"),
        "stateless change",
    ),
    "failures of an aggregate are set aside": (
        op(agg(t=Total("cents"))),
        op(agg(t=Total("cents")), on_error="quarantine"),
        "rebuild",
    ),
    # after the state, and without any
    "a filter after the window": (op(), op(after=lambda s: s.filter("total > 10")), "stateless change"),
    "a column after the window": (op(), op(after=lambda s: s.with_columns(euros="total / 100")), "stateless change"),
    "a column less after the window": (op(after=lambda s: s.with_columns(euros="total / 100")), op(), "rebuild"),
    "a column of another type": (
        op(after=lambda s: s.with_columns(total="CAST(total AS double)")),
        op(after=lambda s: s.with_columns(total="CAST(total AS string)")),
        "rebuild",
    ),
    "an output more": (
        op(outputs=lambda r: fm.Outputs(all=r)),
        op(outputs=lambda r: fm.Outputs(all=r, large=r.filter("total > 10"))),
        "stateless change",
    ),
    "an output under another name": (
        op(outputs=lambda r: fm.Outputs(old=r)),
        op(outputs=lambda r: fm.Outputs(new=r)),
        "stateless change",
    ),
    "an output under another name, and another aggregate": (
        op(outputs=lambda r: fm.Outputs(old=r)),
        op(agg(total=fm.max("cents")), outputs=lambda r: fm.Outputs(new=r)),
        "rebuild",
    ),
    "an output under another name, and other windows": (
        op(outputs=lambda r: fm.Outputs(old=r)),
        op(outputs=lambda r: fm.Outputs(new=r), window=fm.Tumbling("2 hours")),
        "rebuild",
    ),
    "an output under another name, and a filter before the window": (
        op(outputs=lambda r: fm.Outputs(old=r)),
        op(before=lambda s: s.filter("items > 0"), outputs=lambda r: fm.Outputs(new=r)),
        "forward-only",
    ),
    "another condition without state": (stateless(), stateless(lambda s: s.filter("cents > 20")), "stateless change"),
    # after results that are revised
    "a filter after late rows": (op(**LATE), op(after=lambda s: s.filter("total > 10"), **LATE), "stateless change"),
    "a column after late rows": (op(**LATE), op(after=euros, **LATE), "stateless change"),
    "an output more after late rows": (
        op(outputs=lambda r: fm.Outputs(all=r), **LATE),
        op(outputs=lambda r: fm.Outputs(all=r, large=r.filter("total > 10")), **LATE),
        "stateless change",
    ),
    "failures after late rows are set aside": (
        op(after=euros, **LATE),
        op(after=lambda s: s.with_columns(euros="total / 100", on_error="quarantine"), **LATE),
        "forward-only",
    ),
    "a column after early panes": (op(**EARLY), op(after=euros, **EARLY), "forward-only"),
    "an output more after early panes": (
        op(outputs=lambda r: fm.Outputs(all=r), **EARLY),
        op(outputs=lambda r: fm.Outputs(all=r, large=r.filter("total > 10")), **EARLY),
        "forward-only",
    ),
    "a column after sessions": (
        op(window=fm.Session("1 hour"), **LATE),
        op(window=fm.Session("1 hour"), after=euros, **LATE),
        "forward-only",
    ),
    "a filter over results that are taken back": (
        over_revised(),
        over_revised(lambda s: s.filter("total > 10")),
        "forward-only",
    ),
    "state where there was none": (stateless(), op(), "rebuild"),
    # process functions
    "a docstring of a function": (process(Running()), process(Documented()), "no-op"),
    "another body": (process(Running()), process(Doubled()), "forward-only"),
    "another setting": (process(Scaled(1)), process(Scaled(2)), "forward-only"),
    "another timer": (process(Running()), process(Clocked()), "forward-only"),
    "a wider type of state": (process(Running()), process(Wider()), "compatible state"),
    "a narrower type of state": (process(Wider()), process(Running()), "rebuild"),
    "another type of state": (process(Running()), process(Named()), "rebuild"),
    "another type of state with a way": (process(Running()), process(Migrated()), "compatible state"),
    "two versions of state later": (process(Running()), process(Chained()), "compatible state"),
    "a version of state without a way": (process(Running()), process(Skipping()), "rebuild"),
    "a time to live": (process(Running()), process(Fading()), "compatible state"),
    "another kind of state": (process(Running()), process(Listed()), "rebuild"),
    "a state more": (process(Running()), process(More_()), "compatible state"),
    "a state less": (process(More_()), process(Running()), "compatible state"),
    "a side output more": (process(Running()), process(Running(), sides={"odd": Priced}), "stateless change"),
    "failures of a function set aside": (
        process(Running()),
        process(Running(), on_error="quarantine"),
        "stateless change",
    ),
    "a function where there was a window": (op(), process(Running()), "rebuild"),
    # joins
    "another bound of a join": (joined(), joined("2 hours"), "forward-only"),
    "another kind of join": (joined(), joined(kind="left"), "rebuild"),
    "another kind of regular join": (paired(), paired("left"), "rebuild"),
    "a filter before a join": (joined(), joined(change=lambda s: s.filter("cents > 0")), "forward-only"),
    # inputs
    "another table": (op(), op(table="shop_sales"), "rebuild"),
    "an input more": (op(), two_inputs(), "rebuild"),
    "inputs in another order": (two_inputs(), two_inputs(lambda sales, web: web.union(sales)), "rebuild"),
    "inputs in another order, and a column more": (
        two_inputs(),
        two_inputs(lambda sales, web: web.union(sales), after=lambda r: r.with_columns(euros="total / 100")),
        "rebuild",
    ),
    "aggregates in another order": (
        op(agg(total=fm.sum("cents"), n=fm.count())),
        op(agg(n=fm.count(), total=fm.sum("cents"))),
        "rebuild",
    ),
    "aggregates in another order, and late rows are kept": (
        op(agg(total=fm.sum("cents"), n=fm.count())),
        op(agg(n=fm.count(), total=fm.sum("cents")), late="side_output"),
        "rebuild",
    ),
    "an input that every key sees": (
        connected(Both(), lambda web: web.key_by("shop")),
        connected(Rules(), lambda web: web.broadcast()),
        "rebuild",
    ),
    "sides of a join": (joined(), joined(swapped=True), "rebuild"),
    "a column more in the contract": (op(), op(contract=More), "stateless change"),
    "a column less in the contract": (op(contract=More), op(), "stateless change"),
}


def deployed(operator):
    tables = {output.table: tuple(output.schema.types.items()) for output in operator.outputs}
    return Deployed(
        version=operator.version, fingerprint=operator.fingerprint, graph=operator.canonical(), tables=tables
    )


@pytest.mark.feature("V10")
@pytest.mark.parametrize("edit", EDITS)
def test_each_edit_has_its_verdict(edit):
    before, after, verdict = EDITS[edit]
    found = plan(deployed(before), after)
    assert found.verdict == verdict, found.changes
    assert bool(found.changes) == (verdict != "no-op") == (before.version != after.version)
    assert all(change.where and change.otherwise.endswith(".") for change in found.changes)


def test_only_an_optional_column_that_no_step_reads_needs_no_upgrade():
    resuming = {edit for edit, (before, after, _) in EDITS.items() if plan(deployed(before), after).resumes}
    assert {edit for edit in resuming if EDITS[edit][2] != "no-op"} == {"a column more in the contract"}
    assert plan(deployed(op(late="side_output")), op(contract=More, late="side_output")).resumes
    for after in (op(contract=Strict), op(contract=More, after=lambda s: s.filter("total > 10"))):
        assert not plan(deployed(op()), after).resumes
    assert not plan(deployed(stateless()), stateless(contract=More)).resumes, "its rows have the column, too"


def test_there_are_enough_of_them():
    assert len(EDITS) >= 40
    assert {verdict for _, _, verdict in EDITS.values()} == {
        "no-op",
        "stateless change",
        "compatible state",
        "forward-only",
        "rebuild",
    }


def test_without_a_stream_there_is_nothing_to_change():
    found = plan(None, op())
    assert (found.deployed, found.verdict) == (None, "no-op")


@pytest.mark.parametrize(
    ("edit", "before", "after", "words"),
    [
        (
            "sum of another column",
            "total=sum(cents)",
            "total=sum(items)",
            "the sum of cents up to now and of items from now on",
        ),
        (
            "sum becomes max",
            "total=sum(cents)",
            "total=max(cents)",
            "the sum kept of each open window would be taken for its max",
        ),
        ("a filter before the window", "", "filter items > 0", "hold rows as the old code let them through"),
        ("another key", "key_by(shop)", "key_by(town)", "under the old keys would come out as results of the new ones"),
    ],
)
def test_what_spark_accepts_and_gets_wrong_is_said(edit, before, after, words):
    found = [c for c in plan(deployed(EDITS[edit][0]), EDITS[edit][1]).changes if not c.where.startswith("table")]
    assert [(c.before, c.after) for c in found] == [(before, after)]
    assert words in found[0].otherwise
    assert "Spark would resume from the same checkpoint without a word" in found[0].otherwise


# ---- what would come of it, on the kernels


def sales(count, first=0):
    start = datetime(2024, 1, 1)
    return [
        {
            "at": start + timedelta(minutes=7 * (first + n)),
            "shop": "ab"[n % 2],
            "town": "xyz"[n % 3],
            "cents": 5 + 9 * (n % 5),
            "items": n % 4,
        }
        for n in range(count)
    ]


def answer(tables):
    found = Counter()
    for table in tables:
        for row in table.to_pylist():
            if row["_kind"] != MARKER:
                values = tuple((k, v) for k, v in row.items() if not k.startswith("_"))
                found[values] += 1 if row["_kind"] == ROW else -1
    return Counter({row: n for row, n in found.items() if n})


def run(*parts):
    """The rows in as many parts as there are operators; each goes on from the state the one before left."""
    log = Log(parts[0].inputs[0].schema)
    for row in sales(60):
        log.row(row, int(row["at"].timestamp() * 1000))
        log.move(log.entries[-1]["_event_time"] - 1)
    log.end()
    found, state, size = [], None, len(log.entries)
    for number, operator in enumerate(parts):
        going = MemoryRun(operator, state)
        piece = log.table(size * number // len(parts), size * (number + 1) // len(parts))
        found.append(going.batch({"sales": piece})[""])
        state = going.savepoint()
    return found


@pytest.mark.parametrize(
    "edit", ["sum of another column", "sum becomes max", "a filter before the window", "another key"]
)
def test_without_the_plan_the_result_is_of_neither(edit):
    before, after, verdict = EDITS[edit]
    assert verdict in {"rebuild", "forward-only"}
    if edit == "sum becomes max":  # in columns the kernel finds it out and stops
        before, after = (op(agg(total=f("cents")), order="event_time") for f in (fm.sum, fm.max))
    mixed = run(before, after)[1]
    whole = answer(run(after))
    alone = answer([mixed])
    assert sum(alone.values()) > 2, "nothing came out after the change"
    renamed = {tuple(v for _, v in row) for row in whole}
    wrong = [row for row in alone if tuple(v for _, v in row) not in renamed]
    assert wrong, "every result after the change is one of the new code: the verdict is too strict"


@pytest.mark.parametrize("edit", ["a filter after the window", "a column after the window"])
def test_a_stateless_change_goes_on_from_the_state_and_is_right(edit):
    before, after, verdict = EDITS[edit]
    assert verdict == "stateless change"
    first, second = run(before, after)
    whole, before_it = answer(run(after)), answer(run(before, before)[:1])
    assert sum(answer([first]).values()) == sum(before_it.values()) > 2
    later = answer([second])
    assert later
    assert later <= whole
    seen = {dict(row)["window_start"] for row in later}
    assert later == Counter({row: n for row, n in whole.items() if dict(row)["window_start"] in seen})


@pytest.mark.parametrize("edit", [edit for edit in EDITS if edit.startswith(("a column after", "a filter over"))])
def test_a_change_behind_results_that_are_revised_says_what_becomes_of_them(edit):
    before, after, verdict = EDITS[edit]
    found = plan(deployed(before), after)
    told = next(change.otherwise for change in found.changes if not change.where.startswith("table"))
    assert ("counts it wrong" in told) == ("--rebuild" in told) == (verdict == "forward-only")
    assert ("restated" in told) == bool(found.restates) == ("late rows" in edit)


def test_outputs_are_restated_whose_steps_are_others_and_those_that_are_new():
    def outputs(least, **more):
        return op(
            outputs=lambda r: fm.Outputs(
                all=r, large=r.filter(f"total > {least}"), **{name: r.filter(text) for name, text in more.items()}
            ),
            **LATE,
        )

    before = deployed(outputs(10))
    assert plan(before, outputs(10)).restates == ()
    assert plan(before, outputs(20)).restates == ("takings__large",)
    assert plan(before, outputs(20, small="total < 3")).restates == ("takings__large", "takings__small")
    late = plan(before, outputs(10, small="total < 3"))
    assert late.restates == ("takings__small",)
    assert "begins with the results of the windows that a late row may still revise" in late.changes[-1].otherwise


def test_without_it_a_result_that_is_revised_would_be_taken_back_as_it_never_was():
    before, after = (op(after=lambda s, n=n: s.with_columns(euros=f"total / {n}"), **LATE) for n in (100, 10))
    log, start = Log(before.inputs[0].schema), datetime(2024, 1, 1)
    for minutes in (0, 70, 5):  # an hour, its end, and a row that comes late for it
        at = start + timedelta(minutes=minutes)
        log.row({"at": at, "shop": "a", "town": "x", "cents": 100, "items": 1}, int(at.timestamp() * 1000))
        if minutes == 70:
            log.move(log.entries[-1]["_event_time"] - 1)
    log.end()
    first = MemoryRun(before)
    told = first.batch({"sales": log.table(0, 3)})[""]
    told_then = MemoryRun(after, first.savepoint()).batch({"sales": log.table(3)})[""]
    never = [dict(row)["euros"] for row, n in answer([told, told_then]).items() if n < 0]
    assert never == [10.0], "and it was 1.0"
