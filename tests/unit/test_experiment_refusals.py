"""What is no experiment is refused before anything is made, and what is no arm to promote before anything is stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from events import Event
from small_fleet import fleet_of
from small_lake import TOTALS, batch, make, row, totals

from floodmark import (
    PromoteWhen,
    Stream,
    Tumbling,
    count,
    max,
    operator,
    sum,
)
from floodmark.control.delivery import experiments, promotion
from floodmark.control.processes.supervisor import LEASE
from floodmark.control.state.records import Action
from floodmark.control.streams import actions
from floodmark.control.streams.fleet import Fleet
from floodmark.control.streams.saving import check_unneeded
from floodmark.core.errors import DefinitionError, LifecycleError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import write
from floodmark.lake.restore import experiments as kept
from floodmark.lake.restore import savepoints, switch
from floodmark.lake.restore.fork import fork, move
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.stream.identity import Divided
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.experiment import Arm, Experiment, Sample, State
from floodmark.lifecycle.pairing import Results, check_sampled
from floodmark.lifecycle.requests import ComparisonRequest, ExperimentRequest, PromotionRequest
from floodmark.lifecycle.switch import Switchover, Target

RULE = PromoteWhen()


@pytest.fixture
def streams(tmp_path: Path) -> Fleet:
    """A stream that is said to run, as far as the control store knows."""
    make(tmp_path / "lake")
    (tmp_path / "pyproject.toml").write_text("")
    found = fleet_of(tmp_path, engine="embedded")
    found.deploy("totals", found.pack(), TOTALS.version, "running")
    return found


def made(streams: Fleet, state: State = "running") -> Experiment:
    """An experiment of two arms, without drivers."""
    lake = streams.lake
    began = savepoints.create("totals", lake)
    arms = [
        Arm(name=name, code=".", package="p", version=TOTALS.version, root=kept.root_of(lake, "known", name))
        for name in ("a", "b")
    ]
    for arm in arms:
        fork(lake, began, arm.root)
        experiments.of(streams, arm).deploy("totals", "p", TOTALS.version, "running")
    return kept.keep(
        lake,
        Experiment(
            name="known", operator="totals", savepoint=began.manifest.id, arms=tuple(arms), state=state, who="", why="",
            began_at=0, since=0,
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("codes", "rule", "candidate", "code", "words"),
    [
        ({"a": "@current"}, None, "", "LIFECYCLE-093", "expected two arms or more, got 1 of them"),
        ({}, None, "", "LIFECYCLE-093", "config: arms: {a: '@current', b: '.'}"),
        ({"a": "@current", "B": "."}, None, "", "LIFECYCLE-093", "expected names of lower-case letters, digits"),
        ({"a": "@current", "B": "."}, None, "", "LIFECYCLE-093", "got the name 'B'"),
        ({"a": "@current", "b": "gone"}, None, "", "LIFECYCLE-093", "expected code that is kept, got 'gone'"),
        ({"a": "@current", "b": "../p"}, None, "", "LIFECYCLE-093", "expected code that is kept"),
        ({"a": "@current", "b": "."}, RULE, "c", "LIFECYCLE-092", "got 'c'"),
        ({"a": "@current", "b": "."}, RULE, "a", "LIFECYCLE-092", "got 'a'"),
        ({"a": "@current", "b": ".", "c": "."}, RULE, "", "LIFECYCLE-092", "got 2 that it could be"),
    ],
)
def test_what_is_no_experiment(
    streams: Fleet, codes: Mapping[str, str], rule: PromoteWhen | None, candidate: str, code: str, words: str
) -> None:
    with pytest.raises(LifecycleError) as refused:
        experiments.start(streams, "mine", "totals", ExperimentRequest(arms=codes, promote=candidate), rule)
    assert refused.value.code == code
    assert words in str(refused.value)
    assert refused.value.fix
    assert not kept.known(streams.lake)
    assert not savepoints.savepoints(streams.lake, "totals")


def test_a_rule_about_a_column_that_is_not_there_is_refused_whoever_asks(streams: Fleet) -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-162.*Did you mean 'total'"):
        experiments.start(streams, "mine", "totals", ExperimentRequest(promote_when=("totl within 1",)))
    assert not kept.known(streams.lake)


@pytest.mark.parametrize("arms", ["ab", "b"])
def test_a_start_that_was_killed_before_the_supervisor_knew_of_all_arms_goes_on(streams: Fleet, arms: str) -> None:
    there = made(streams)
    for arm in there.arms:
        if arm.name in arms:
            streams.store.withdraw(experiments.of(streams, arm).stream("totals"))
    again = ExperimentRequest(arms={"a": ".", "b": "."})
    assert experiments.start(streams, "known", "totals", again) == there
    wanted = [experiments.of(streams, arm).deployments(["totals"])["totals"].desired for arm in there.arms]
    assert wanted == ["running", "running"]
    with pytest.raises(LifecycleError, match="LIFECYCLE-091"):
        experiments.start(streams, "known", "totals", again)


def test_an_arm_the_supervisor_does_not_know_yet_is_promoted_like_one_that_is_stopped(streams: Fleet) -> None:
    there = made(streams)
    arm = there.arm("b")
    streams.store.withdraw(experiments.of(streams, arm).stream("totals"))
    promotion._brought_up(streams, there, arm, patience=0)  # it has read all there is
    known = experiments.of(streams, arm).deployments(["totals"])["totals"]
    assert (known.package, known.version, known.desired) == (arm.package, arm.version, "stopped")


@pytest.mark.parametrize("code", ["LIFECYCLE-035", "LIFECYCLE-053"])
def test_a_killed_rollback_that_would_be_refused_by_now_stands_in_no_ones_way(
    streams: Fleet, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """It was refused for ever, with a command that was refused for it as well; one that can be finished later stays."""
    back = savepoints.create("totals", streams.lake).manifest
    begun = actions.begin(streams, "rollback", "totals", back.version, {}, step="rolling back", savepoint=back.id)

    def refused(*_: object) -> None:
        raise LifecycleError("rollback", "a cut", "none", "Leave the readers.", code=code)

    monkeypatch.setattr(actions, "_rolled_back", refused)
    if code == "LIFECYCLE-053":
        with pytest.raises(LifecycleError, match=code):
            actions.recover(streams, "totals", lambda: None)
        assert streams.store.unfinished(streams.stream("totals")) is not None
    else:
        actions.recover(streams, "totals", lambda: None)
        assert streams.store.action(begun.id).step == "refused"
        assert code in str(streams.store.action(begun.id).reason)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ExperimentRequest(sample=0.0), "got a share of 0"),
        (
            ExperimentRequest(sample=0.1, promote_when=("match>=1",)),
            "got a rule by which one of them becomes the stream",
        ),
    ],
)
def test_what_no_sample_of_the_keys_can_be_taken_of(streams: Fleet, request_: ExperimentRequest, words: str) -> None:
    with pytest.raises(LifecycleError, match=f"LIFECYCLE-116.*{words}.*--sample"):
        experiments.start(streams, "mine", "totals", request_)
    assert not kept.known(streams.lake)


def test_a_sample_is_drawn_of_the_key_groups_of_the_savepoint(streams: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream may have been divided among others since, of which the arms know nothing."""
    began = savepoints.create("totals", streams.lake)
    Timeline.current(streams.lake, "totals").identity.regroup(Divided(1 << 15, 4_096))
    monkeypatch.setattr(experiments, "_set_up", lambda _fleet, started, _request: started)
    texts = ("64 of 128 key groups, 50.0%", "2048 of 4096 bundles of key groups, 50.0%")
    for savepoint, among, text in zip((began.manifest.id, ""), (128, 4_096), texts, strict=True):
        half = experiments.start(streams, "mine", "totals", ExperimentRequest(sample=0.5, savepoint=savepoint))
        assert half.sample is not None
        assert (half.sample.among, len(half.sample.groups)) == (among, among // 2)
        assert str(half.sample).startswith(text)
        kept.forget(streams.lake, half)


def test_no_arm_of_a_sample_becomes_the_stream(streams: Fleet) -> None:
    some = Sample(groups=(3, 5), among=64)
    kept.keep(streams.lake, replace(made(streams), sample=some))
    for ask in (promotion.promote, promotion.promote_steps):
        with pytest.raises(
            LifecycleError,
            match=r"LIFECYCLE-117.*got 2 of 64 key groups, 3.1% of the keys.*known_whole --of totals --arm a=p",
        ):
            ask(streams, "known", PromotionRequest(arm="b"))


def test_versions_of_which_the_same_keys_can_be_taken() -> None:
    def counted(events: Stream[Event]) -> Stream:
        return events.key_by("value").window(Tumbling("1 minute")).aggregate(n=count())

    def typed(events: Stream[Event]) -> Stream:
        keyed = events.with_columns(key="length(key)").key_by("key")
        return keyed.window(Tumbling("1 minute")).aggregate(n=count())

    def alone(events: Stream[Event]) -> Stream:
        return events.filter("value > 1")

    def all_of(events: Stream[Event]) -> Stream:
        return events.window(Tumbling("1 minute")).aggregate(n=count())

    same, other, text, plain, one = (
        Results.of(operator(code, name="totals")) for code in (kept_keys, counted, typed, alone, all_of)
    )
    check_sampled("here", {"a": same, "b": same})
    for versions, words in (
        ({"a": same, "b": other}, "b has rows per value, and not rows per key"),
        ({"a": same, "b": text}, "b has totals.key as int, and not string"),
        ({"a": same, "b": plain}, "b has rows without a key, and not rows per key"),
        ({"a": plain, "b": plain}, "a has rows without a key"),
        ({"a": one, "b": one}, "a has rows per nothing"),
    ):
        with pytest.raises(LifecycleError, match=f"LIFECYCLE-116.*{words}"):
            check_sampled("here", versions)


def kept_keys(events: Stream[Event]) -> Stream:
    """As ``totals`` has it."""
    return events.key_by("key").window(Tumbling("1 minute")).aggregate(n=count())


def test_an_experiment_from_a_savepoint_that_is_not_there_leaves_nothing(streams: Fleet) -> None:
    with pytest.raises(LifecycleError, match="'totals-gone'"):
        experiments.start(streams, "mine", "totals", ExperimentRequest(savepoint="totals-gone"))
    assert not kept.known(streams.lake)


def test_two_experiments_of_one_operator_and_two_of_one_name(streams: Fleet) -> None:
    made(streams)
    with pytest.raises(LifecycleError, match="LIFECYCLE-091.*got 'known', which is running.*experiment stop known"):
        experiments.start(streams, "mine", "totals", ExperimentRequest())
    with pytest.raises(LifecycleError, match="LIFECYCLE-091.*got one of 'totals' that is running"):
        experiments.start(streams, "known", "totals", ExperimentRequest(arms={"a": "@current", "b": "@current"}))


@pytest.mark.clock
def test_an_arm_that_cannot_be_promoted(streams: Fleet) -> None:
    """Unknown, paused, crashed, or with nobody there to stop the stream: nothing is begun."""
    there = made(streams)

    def refused(arm: str, words: str) -> None:
        with pytest.raises(LifecycleError, match=words):
            promotion.promote(streams, "known", PromotionRequest(arm=arm))
        assert not streams.store.actions(streams.stream("totals"))

    refused("c", "LIFECYCLE-092.*'known'")
    refused("b", "LIFECYCLE-053.*floodmark supervise")
    streams.store.lease(LEASE, "test", 600)
    fork_of = experiments.of(streams, there.arm("b"))
    driver = streams.store.begin(fork_of.deployments(["totals"])["totals"], str(Path("logs")))
    streams.store.end(driver.id, "crashed", "no memory")
    refused("b", "LIFECYCLE-115.*expected an arm that runs, got a crash: no memory.*floodmark logs totals --lake")
    kept.keep(Lake(streams.lake.root), replace(there, state="paused"))
    refused("b", "LIFECYCLE-095.*expected one whose arms run, got one that is paused")


def test_a_promotion_that_was_refused_in_the_middle_of_its_switch_remembers_that_the_stream_ran(
    streams: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where no supervisor was at work when it was asked for again."""
    there, lake, running = made(streams), streams.lake, streams.deployments(["totals"])["totals"]
    old = {"totals": {"package": running.package, "version": running.version, "desired": "running", "next": "p"}}
    promotes = "floodmark experiment promote known --arm b"
    begun = actions.begin(
        streams, "upgrade", "totals", TOTALS.version, old, step="rebuilding", why="arm b of experiment known"
    )
    streams.want("totals", "stopped")
    target = Target.onto(savepoints.create("totals", lake).manifest, timeline=1, ends=0, source="")
    write(switch._journal(lake), Switchover(again=promotes, targets=(target,), back=there.savepoint).as_json().encode())
    with pytest.raises(LifecycleError, match="LIFECYCLE-053"):
        promotion.promote(streams, "known", PromotionRequest(arm="b"))
    assert streams.store.action(begun.id).step == "refused"

    streams.store.lease(LEASE, "test", 600)
    started = list[Action]()
    monkeypatch.setattr(promotion, "_become", lambda *_: there.savepoint)
    monkeypatch.setattr(promotion, "_started", lambda *given: started.append(given[3]) or (there, given[3]))
    promotion.promote(streams, "known", PromotionRequest(arm="b"))
    assert [one.old["totals"]["desired"] for one in started] == ["running"]


def test_an_arm_that_is_behind_is_not_promoted_and_the_stream_runs_on(streams: Fleet) -> None:
    """An arm that a killed promotion has stopped runs again, so that it can come to where the stream is."""
    there = made(streams)
    streams.store.lease(LEASE, "test", 600)
    batch(streams.lake, 2, [row("d", 4, 7)])
    arm = experiments.of(streams, there.arm("b"))
    arm.want("totals", "stopped")
    with pytest.raises(LifecycleError) as refused:
        promotion.promote(streams, "known", PromotionRequest(arm="b", patience=0))
    assert refused.value.code == "LIFECYCLE-096"
    assert "expected an arm that has read what the stream has, within 0 s" in str(refused.value)
    assert "--patience" in refused.value.fix
    (action,) = streams.store.actions(streams.stream("totals"))
    assert (action.step, action.ended_at is None) == ("refused", False)
    assert streams.deployments(["totals"])["totals"].desired == "running"
    assert arm.deployments(["totals"])["totals"].desired == "running"
    assert kept.find(streams.lake, "known") == there
    assert totals(streams.lake)["d"] == 4


def keyed_by_other(streams: Fleet, arm: Arm) -> None:
    """The arm's table and definition become those of a version that is keyed by another column."""

    @operator
    def totals(events: Stream[Event]) -> Stream:
        windowed = events.with_columns(other="key").key_by("other").window(Tumbling("10 minutes"))
        return windowed.aggregate(n=count(), total=sum("value"), key=max("key"))

    path = Lake(arm.root).output("totals")
    rows = DeltaTable(path).to_pyarrow_table()
    write_deltalake(path, rows.append_column("other", rows["key"]), mode="overwrite", schema_mode="overwrite")
    Timeline.current(Lake(arm.root), "totals").identity.deploy(totals)


def test_outputs_of_arms_with_other_keys_are_not_compared_and_the_report_says_why(streams: Fleet) -> None:
    there = made(streams)
    keyed_by_other(streams, there.arm("b"))
    told = experiments.report(streams, "known", ComparisonRequest())
    why = told.comparisons["b"]["totals"]
    assert isinstance(why, str)
    assert "has rows per other, and not rows per key" in why
    assert not told.passes(there.arm("b"))
    assert not told.same


def test_the_savepoint_that_a_stream_has_moved_with_is_not_deleted(streams: Fleet, tmp_path: Path) -> None:
    """No supervisor need have run: the lake says so."""
    lake = streams.lake
    _, going = move(lake, "totals", str(tmp_path / "elsewhere"))
    back = savepoints.find(lake, going.savepoint)
    with pytest.raises(
        LifecycleError, match=f"LIFECYCLE-113.*got its stream has moved.*rollback totals --to {back.id}"
    ):
        check_unneeded(lake, back, None)
    roll_back(lake, back)
    check_unneeded(lake, back, None)


@pytest.mark.parametrize("place", ["back", "target"])
def test_the_savepoints_of_a_switch_that_was_killed_are_not_deleted(streams: Fleet, place: str) -> None:
    lake = streams.lake
    made = savepoints.create("totals", lake)
    target = Target.onto(made.manifest, timeline=1, ends=0, source="")
    another = replace(target, savepoint="totals-20260101T000000-abcd")
    begun = Switchover(again="floodmark rollback totals --to it", targets=(target if place == "target" else another,))
    write(lake.internal("switch.json"), replace(begun, back=made.id if place == "back" else "").as_json().encode())
    with pytest.raises(LifecycleError, match="LIFECYCLE-113.*not finished. Finish that one first: floodmark rollback"):
        check_unneeded(lake, made, None)


def test_the_savepoint_that_arms_began_with_is_not_deleted(streams: Fleet) -> None:
    there = made(streams)
    began = savepoints.find(streams.lake, there.savepoint)
    with pytest.raises(LifecycleError, match="LIFECYCLE-113.*got experiment 'known' began with it.*experiment clean"):
        check_unneeded(streams.lake, began, streams)
    kept.forget(streams.lake, there)
    check_unneeded(streams.lake, began, streams)
