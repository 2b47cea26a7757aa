"""Verdicts for changes of a stateful step: whether existing state stays valid, and what Spark would do without the check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from floodmark.compiler.describe import aggregate, order_by, over, pattern, ranking, row_pattern, selected, setting
from floodmark.compiler.paths import STATEFUL, Node
from floodmark.core.errors import StateError
from floodmark.core.time import describe_span
from floodmark.lifecycle.change import Change, Verdict
from floodmark.spec.graph.operator import Operator
from floodmark.spec.graph.steps import KeyedProcess, Stateful, WindowAggregate, quarantines, walk
from floodmark.spec.keyed.process import StatefulFunction
from floodmark.spec.keyed.state import evolution


def restated(operator: Operator) -> bool:
    """Whether an upgrade restates results that a late row may still revise. Only windows that keep their last results can restate them.

    False if a step behind the windows quarantines rows: quarantined rows are never retracted.
    """
    step = operator.stateful
    if len(operator.links) > 1 or not isinstance(step, WindowAggregate) or not (step.columnar and step.revises):
        return False
    return not any(quarantines(one) for _, result in operator.results for one in walk(result, until=step))


def stateful_changes(before: Node, after: Node, step: Stateful) -> Iterator[Change]:
    """The differences between two definitions of a stateful step.

    Args:
        before: the deployed step.
        after: the step in the current code.
        step: that of the current code.
    """
    where = f"step '{before['uid']}'"
    if before["step"] != after["step"]:
        texts = [STATEFUL[side["step"]] for side in (before, after)]
        otherwise = "What one keeps means nothing to the other."
        yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict="rebuild")
        return
    for name, (verdict, otherwise) in _MEANINGS.items():
        was, now = before.get(name), after.get(name)
        if was != now:
            texts = [setting(name, value) for value in (was, now)]
            yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict=verdict)
    yield from _ports(where, before.get("ports", ()), after.get("ports", ()))
    if before["step"] == "process":
        assert isinstance(step, KeyedProcess)
        names = [side["function"].get("name") for side in (before, after)]
        of_own = _OWN.get(names[0]) if names[0] == names[1] else None
        if names == ["regular_join"] * 2:
            yield from _kind(where, before["function"]["settings"], after["function"]["settings"])
        if of_own is not None:
            yield from of_own(where, before["function"]["settings"], after["function"]["settings"])
        else:
            yield from _process(where, before["function"], after["function"], step.function.function)
    if before["step"] == "window_aggregate":
        yield from _aggregates(where, dict(before["aggregates"]), dict(after["aggregates"]))
        yield from _function(where, before.get("function"), after.get("function"))
    yield from _on_error(where, before, after)


def _ports(where: str, before: Sequence[Node], after: Sequence[Node]) -> Iterator[Change]:
    """Differences in the inputs of a step with several inputs: rows in state are marked with the number of their input."""
    texts = [
        ", ".join(p["name"] + (" to all keys" if p["broadcast"] else "") for p in side) for side in (before, after)
    ]
    if texts[0] != texts[1]:
        otherwise = "What is kept of one input would be taken for what is kept of the other."
        yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict="rebuild")


def _process(where: str, before: Node, after: Node, function: StatefulFunction) -> Iterator[Change]:
    """Differences of a process function: states one by one, then timers, migrate functions, code and settings."""
    declared = {**function.states(), **function.broadcast_states()}
    old, new = before.get("states", {}), after.get("states", {})
    for name in {**old, **new}:
        was, now = old.get(name), new.get(name)
        if was == now:
            continue
        texts = [f"state {name}: {one['state']} of {one['type']}" if one else "" for one in (was, now)]
        verdict: Verdict = "compatible state"
        if was is None:
            otherwise = "It is empty for every key that is kept already."
        elif now is None:
            otherwise = "What is kept of it is forgotten when its key is next touched."
        else:
            texts = [f"{text}, {_details(one)}" for text, one in zip(texts, (was, now), strict=True)]
            try:
                evolution(name, was, declared[name])
                otherwise = "What is kept is read by the rules of its types, or by its migrate function, when its key is next touched."
            except StateError:
                otherwise = (
                    "What is kept cannot be read as it is declared now: the run would stop at the first key it touches."
                )
                verdict = "rebuild"
        yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict=verdict)
    yield from _timers(where, before.get("timers", {}), after.get("timers", {}))
    old_migrations, new_migrations = (before.get("migrate", {}), after.get("migrate", {}))
    for name in {**old_migrations, **new_migrations}:
        if old.get(name) == new.get(name) and old_migrations.get(name) != new_migrations.get(name):
            texts = [f"state {name}: migrate {when}" for when in ("as deployed", "as defined now")]
            otherwise = "Keys that are not touched yet are read by the new function; what the old one has read stays."
            yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict="compatible state")
    apart = {"states", "timers", "migrate"}
    remaining = [{n: value for n, value in side.items() if n not in apart} for side in (before, after)]
    if remaining[0] != remaining[1]:
        parts = [name for name in ("code", "settings") if remaining[0].get(name) != remaining[1].get(name)]
        otherwise = "State and timers stay: rows from now on are handled by the new code, what the old code has kept is taken as it is."
        texts = [f"its {', '.join(parts) or 'columns'} {when}" for when in ("as deployed", "as defined now")]
        yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict="forward-only")


def _kind(where: str, before: Node, after: Node) -> Iterator[Change]:
    """Another kind of a regular join: its state says which results were emitted, and so does the state behind it."""
    if before["kind"] != after["kind"]:
        otherwise = (
            "Rows without a partner that one kind emits and the other does not would be taken back without ever having been there, or stay "
            "for ever; and a step behind an inner join does not expect that rows are taken back."
        )
        texts = [f"a join of kind {side['kind']}" for side in (before, after)]
        yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict="rebuild")


def _pattern(where: str, before: Node, after: Node) -> Iterator[Change]:
    """Differences of a pattern: the rows of open partial matches are stored as they came, and matched again."""
    matched = ("pattern", "skip", "sequence")
    if any(before.get(name) != after.get(name) for name in matched):
        otherwise = (
            "Rows of partial matches that are open are stored as they came: they are matched again by the new pattern. Rows that the old "
            "pattern has given up are gone, and matches that were emitted stay."
        )
        verdict, otherwise = _matched_again(before, after, otherwise)
        texts = [f"pattern {pattern(side['pattern'])}, {side['skip']['strategy']}" for side in (before, after)]
        yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict=verdict)
    if before["outputs"] != after["outputs"]:
        otherwise = "Matches from now on are selected by the new measures; those already written stay."
        texts = [f"select {selected(side['outputs'])}" for side in (before, after)]
        yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict="compatible state")


def _row_pattern(where: str, before: Node, after: Node) -> Iterator[Change]:
    """Differences of a row pattern: the rows at which the next match may begin are stored as they came, and searched again."""
    if before == after:
        return
    parts = [name for name in ("define", "measures", "sequence") if before.get(name) != after.get(name)]
    otherwise = (
        "Rows at which the next match may begin are stored as they came: the new pattern is searched for among them. Rows that the old "
        "pattern has passed are gone, and matches that were emitted stay."
    )
    texts = [
        row_pattern(side) + (f"; its {', '.join(parts)} {when}" if parts else "")
        for side, when in ((before, "as deployed"), (after, "as defined now"))
    ]
    verdict, otherwise = _matched_again(before, after, otherwise)
    yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict=verdict)


def _matched_again(before: Node, after: Node, otherwise: str) -> tuple[Verdict, str]:
    """Verdict and consequence of another pattern: a new condition that only an engine computes cannot match rows in state."""
    unread = [text for text in after.get("engine", ()) if text not in before.get("engine", ())]
    if unread:
        return "rebuild", f"Rows that are stored cannot be matched again: only an engine computes {unread[0]!r}."
    return "compatible state", otherwise


def _over(where: str, before: Node, after: Node) -> Iterator[Change]:
    """Differences of results over rows: what is kept are the rows and accumulators of the old frames."""
    if before["measures"] != after["measures"]:
        otherwise = "What is kept of a key are the rows and accumulators of the old results: the new ones would begin with those."
        texts = [f"over {over(side['measures'])}" for side in (before, after)]
        yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict="rebuild")


def _over_changing(where: str, before: Node, after: Node) -> Iterator[Change]:
    """Differences of results over rows that change: what is kept are rows in their old order, with the old results."""
    if before != after:
        otherwise = "What is kept of a key are its rows in the old order with the old results, and other columns are not among them."
        texts = [
            f"over {over(side['measures'])} in order of {order_by(side['order'])} of {', '.join(side['columns'])}"
            for side in (before, after)
        ]
        yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict="rebuild")


def _top(where: str, before: Node, after: Node) -> Iterator[Change]:
    """Differences of the first rows of each key: those that were not among them are not kept."""
    if before != after:
        otherwise = "What is kept of a key are its first rows by the old order: others that the new one takes are gone."
        texts = [f"{ranking(side['ranking'])} of {', '.join(side['columns'])}" for side in (before, after)]
        yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict="rebuild")


def _top_at_once(where: str, before: Node, after: Node) -> Iterator[Change]:
    """Differences of the first rows of each event time, of which nothing is kept."""
    if before != after:
        otherwise = "Nothing is kept of it: results from now on are the new ones."
        texts = [f"{ranking(side['ranking'])} of {', '.join(side['columns'])}" for side in (before, after)]
        yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict="compatible state")


_OWN = {
    "pattern": _pattern,
    "row_pattern": _row_pattern,
    "over": _over,
    "over_changing": _over_changing,
    "top": _top,
    "top_at_once": _top_at_once,
}
"""Name of a function of floodmark's own -> differences of its settings."""


def _timers(where: str, old: Node, new: Node) -> Iterator[Change]:
    for name in {**old, **new}:
        was, now = old.get(name), new.get(name)
        if was != now:
            texts = [f"timer {name}: {one['timer']} time" if one else "" for one in (was, now)]
            otherwise = "It is set for no key yet."
            if was is not None:
                otherwise = (
                    "It does not fire any more: the times it is set to are forgotten when their key is next touched."
                )
            if was is not None and now is not None:
                otherwise = "The times it is set to are taken for those of the other clock."
            yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict="forward-only")


def _details(state: Node) -> str:
    parts = [f"version {state.get('version', 1)}"]
    parts += [f"ttl {describe_span(state['ttl'])}"] if state.get("ttl") else []
    return ", ".join(parts)


_MEANINGS: Mapping[str, tuple[Verdict, str]] = {
    "uid": (
        "compatible state",
        "State lies by the place of its step, which goes on under its new name; savepoints made until now know the old one.",
    ),
    "keys": (
        "rebuild",
        (
            "Spark would resume from the same checkpoint without a word: what was gathered under the old keys would come out as results of "
            "the new ones, and rows of the new keys would begin beside it."
        ),
    ),
    "window": (
        "rebuild",
        "What is kept is cut by the old windows: sums of these cannot be divided into, or taken for, those of the new ones.",
    ),
    "trigger": (
        "rebuild",
        "What a trigger has counted and waits for is kept with each window, and means nothing to another one.",
    ),
    "evictor": ("rebuild", "Rows that the old evictor let go of are gone; the first results would lack them."),
    "accumulation": ("rebuild", "Windows that have fired hold what the other way of accumulating left in them."),
    "time": ("rebuild", "Windows of one clock would be closed by the other."),
    "order": ("rebuild", "Rows that wait for their turn would be lost, or taken twice."),
    "kind": (
        "rebuild",
        "Which of the rows that are kept have had a partner is known only where it mattered before.",
    ),
    "interval": (
        "forward-only",
        "Rows that the old bounds have let go of get no partners under the new ones; rows from now on are joined by the new bounds.",
    ),
    "allowed_lateness": (
        "forward-only",
        "Windows that the old bound has freed cannot be revised any more; the new bound holds for those that are still kept.",
    ),
    "late": ("stateless change", "Rows that came too late before now were counted or kept as it was said then."),
}
"""Setting of a stateful step -> verdict on a changed value, and the consequence of resuming without a plan."""


def _aggregates(where: str, before: Mapping[str, Node], after: Mapping[str, Node]) -> Iterator[Change]:
    orders = [[name for name in side if name in before and name in after] for side in (before, after)]
    if orders[0] != orders[1]:
        texts = [", ".join(names) for names in orders]
        otherwise = "What is kept of open windows lies in the order of the aggregates."
        yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict="rebuild")
    for name in {**before, **after}:
        was, now = before.get(name), after.get(name)
        if was == now:
            continue
        texts = [f"{name}={aggregate(one)}" if one else "" for one in (was, now)]
        if was is None:
            otherwise = "What is kept of open windows has no value for it, and the rows it needs are not kept."
        elif now is None:
            otherwise = "What is kept of open windows has it; the table has its column."
        elif was["aggregate"] != now["aggregate"] or was.get("code") != now.get("code"):
            otherwise = (
                f"Spark would resume from the same checkpoint without a word: the {was['aggregate']} kept of each open window would be taken "
                f"for its {now['aggregate']}, or the run would stop where it finds that it cannot be."
            )
        else:
            otherwise = (
                f"Spark would resume from the same checkpoint without a word: in open windows it would be the {was['aggregate']} of "
                f"{was['expression']} up to now and of {now['expression']} from now on."
            )
        yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict="rebuild")


def _function(where: str, before: Node | None, after: Node | None) -> Iterator[Change]:
    if before == after:
        return
    texts = ["" if one is None else "reduce" if one["reduces"] else "process" for one in (before, after)]
    if before is None or after is None or before["reduces"] != after["reduces"]:
        otherwise = "One keeps rows where the other keeps values."
        yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict="rebuild")
    elif before["reduces"]:
        otherwise = "The rows that are kept are what the old code has made of all before them."
        yield Change(
            where=where, before="reduce", after="reduce with other code", otherwise=otherwise, verdict="rebuild"
        )
    else:
        otherwise = "Rows are kept as they came: panes from now on are made by the new code, also of windows that are open; those already out stay."
        yield Change(
            where=where, before="process", after="process with other code", otherwise=otherwise, verdict="forward-only"
        )


def _on_error(where: str, before: Node, after: Node) -> Iterator[Change]:
    was, now = (side.get("on_error", "stop") for side in (before, after))
    if was == now:
        return
    own = any("code" in one for _, one in before.get("aggregates", ()))
    otherwise = (
        "Aggregates of your own are kept row by row where failures are set aside, and in columns where they are not."
        if own
        else "What has failed before now was treated as it was said then."
    )
    verdict: Verdict = "rebuild" if own else "stateless change"
    yield Change(where=where, before=f"on_error={was}", after=f"on_error={now}", otherwise=otherwise, verdict=verdict)
