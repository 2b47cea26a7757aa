"""The plan: the differences between a stream's deployed definition and the current code, each with a verdict on state and tables.

Graphs are compared in their canonical form, so that formatting, comments and names of variables make no difference. Code that cannot be
proven to be the same counts as changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Any, get_args

from floodmark.compiler.describe import describe
from floodmark.compiler.paths import Node, Path, apart, chain, copies_of, last_of, parents_of, path_of, stages_of
from floodmark.core.fingerprint import METHOD, canonical, method_of
from floodmark.lifecycle.change import Change, Verdict
from floodmark.lifecycle.meaning import restated, stateful_changes
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.graph.steps import KEY_GROUPS
from floodmark.spec.patterns.matching import MASK

Column = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """The definition with which a stream was started, as recorded in its checkpoint.

    Args:
        version: ``name@3f9a2c1b``.
        fingerprint: of the version.
        graph: canonical form of the operator.
        tables: output table -> its columns, (name, type).
        code: name of each piece of code that the functions reach (``function shop.prices.cents``) -> its digest. Empty if not recorded.
        packages: installed packages that the functions use -> the release.
        key_groups: number of key groups of its state; None without state, or if not recorded.
    """

    version: str
    fingerprint: str
    graph: Node
    tables: Mapping[str, Sequence[Column]]
    code: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    key_groups: int | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The tables of its inputs, in order."""
        return tuple(table for _, table, *_ in self.graph["inputs"])

    @property
    def needs(self) -> dict[str, frozenset[str]]:
        """Input table -> the columns that the definition reads."""
        return {
            table: frozenset(column["name"] for column in columns) for _, table, columns, *_ in self.graph["inputs"]
        }

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of its inputs, in the order in which its query reads them."""
        return sources(self.graph)


def stateful_step(graph: Node) -> Node | None:
    """The last stateful step of an operator, without the steps below it; None for a stateless operator.

    Args:
        graph: of the operator, in its canonical form.
    """
    stages = stages_of(graph)
    return {name: value for name, value in stages[-1].items() if name != "of"} if stages else None


def sources(graph: Node) -> tuple[str, ...]:
    """The names of an operator's inputs in the order in which its query reads them; for a stateful operator, the order of its steps.

    Args:
        graph: of the operator, in its canonical form.
    """
    return tuple(dict.fromkeys(_reading(graph, [step for _, step in graph["outputs"]])))


def reading(graph: Node) -> tuple[str, ...]:
    """The names of an operator's inputs, one for each time that Spark's query reads them.

    The query of several stages is that of the stages which no other one reads, each with the stages before it.

    Args:
        graph: of the operator, in its canonical form.
    """
    stages = stages_of(graph)
    return _reading(graph, last_of(stages) if len(stages) > 1 else [step for _, step in graph["outputs"]])


def _reading(graph: Node, results: Sequence[Node]) -> tuple[str, ...]:
    stages = stages_of(graph)
    if not stages:
        return tuple(name for name, *_ in graph["inputs"])
    if len(stages) > 1 or path_of(results[0]).stateful is None:
        return tuple(name for result in results for name in _read(result))
    return tuple(_read(path_of(results[0]).below))


def _read(step: Node) -> Iterator[str]:
    if step["step"] == "read":
        yield step["input"]
    for parent in parents_of(step):
        yield from _read(parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The differences between a stream and the current definition of its operator.

    Args:
        operator: its name.
        deployed: version with which the stream was started; None if there is no stream.
        defined: version of the code.
        changes: every difference; empty if the two definitions mean the same.
        code: the pieces of code that changed: (``function shop.prices.cents``, "changed", "new" or "gone").
        packages: installed packages whose release changed: (name, as deployed, now). A changed release alone does not change the version.
        restates: output tables whose revisable results the first start under the new code restates.
        key_groups: number of key groups of the stream's state; None without state, or without a stream.
        default_key_groups: number with which a new stream of the operator begins.
    """

    operator: str
    deployed: str | None
    defined: str
    changes: tuple[Change, ...] = ()
    code: tuple[tuple[str, str], ...] = ()
    packages: tuple[tuple[str, str, str], ...] = ()
    restates: tuple[str, ...] = ()
    key_groups: int | None = None
    default_key_groups: int = KEY_GROUPS

    @property
    def verdict(self) -> Verdict:
        """The strictest verdict of all changes."""
        order = get_args(Verdict)
        return max((change.verdict for change in self.changes), key=order.index, default="no-op")

    @property
    def resumes(self) -> bool:
        """Whether the stream resumes under the current code without an upgrade: nothing changed but optional columns that no step reads."""
        return all(change.unread for change in self.changes)


def plan(deployed: Deployed | None, operator: Operator) -> Plan:
    """Compares a stream's deployed definition with the current code.

    Args:
        deployed: None if there is no stream.
        operator: as defined now.
    """
    if deployed is None:
        return Plan(operator=operator.name, deployed=None, defined=operator.version)
    before, after = deployed.graph, operator.canonical()
    comparable = method_of(deployed.fingerprint) == METHOD
    coded = not comparable and (_has_code(before) or _has_code(after))
    if not comparable:
        before, after = _without_code(before), _without_code(after)
    changes = [*_revision(before, after, operator), *_inputs(before, after), *_outputs(before, after, operator)]
    changes += [*_tables(deployed.tables, operator), *_key_groups(deployed, operator)]
    if canonical(_without_columns(before)) != canonical(_without_columns(after)):
        changes = [replace(change, unread=False) for change in changes]
    if not changes and canonical(before) != canonical(after):
        otherwise = "Nothing is known of what it would do to the state there is."
        changes.append(Change(where="graph", before="", after="", otherwise=otherwise, verdict="rebuild"))
    if coded:
        methods = [f"fingerprints of method {method_of(text)}" for text in (deployed.fingerprint, operator.fingerprint)]
        otherwise = (
            "Another release of floodmark deployed it, and digests of code are made in another way now: whether a function has changed "
            "since cannot be told."
        )
        changes.append(
            Change(where="code", before=methods[0], after=methods[1], otherwise=otherwise, verdict="not comparable")
        )
    return Plan(
        operator=operator.name,
        deployed=deployed.version,
        defined=operator.version,
        changes=tuple(changes),
        code=tuple(_code(deployed.code, operator.followed.digests)) if changes and comparable else (),
        packages=tuple(_packages(deployed.packages, operator.followed.packages)),
        restates=tuple(_restated(before, after, deployed, operator, anyway=coded)) if changes else (),
        key_groups=deployed.key_groups,
        default_key_groups=operator.key_groups or KEY_GROUPS,
    )


def _key_groups(deployed: Deployed, operator: Operator) -> Iterator[Change]:
    """The number of key groups, if the operator declares another one than its stream has."""
    was, now = deployed.key_groups, operator.key_groups
    if operator.stateful is None or was is None or now is None or was == now:
        return
    otherwise = "State lies by key group: with another number of them keys are looked for where they are not."
    texts = [f"{number} key groups" for number in (was, now)]
    where = f"step '{operator.stateful.uid}'"
    yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict="rescale")


def _restated(before: Node, after: Node, deployed: Deployed, operator: Operator, *, anyway: bool) -> Iterator[str]:
    """The tables of restated outputs: outputs behind changed steps and new outputs; all outputs if ``anyway`` or if the revision changed."""
    if not restated(operator):
        return
    anyway |= before.get("revision", 0) != after.get("revision", 0)
    steps = [{name: path_of(step).tail for name, step in graph["outputs"]} for graph in (before, after)]
    for output in operator.outputs:
        same = output.table in deployed.tables and steps[0].get(output.name) == steps[1].get(output.name)
        if output.revisable and not output.side and (anyway or not same):
            yield output.table


def _revision(before: Node, after: Node, operator: Operator) -> Iterator[Change]:
    revisions = [f"revision {side.get('revision', 0)}" for side in (before, after)]
    if revisions[0] != revisions[1]:
        stateful_or_revisable = operator.stateful is not None or any(output.revisable for output in operator.outputs)
        otherwise = "You say that it answers otherwise: rows from now on are made by the new code, what is kept or written stays as it is"
        otherwise += (
            ", but for results that a late row may still revise, which are restated." if restated(operator) else "."
        )
        verdict: Verdict = "forward-only" if stateful_or_revisable else "stateless change"
        yield Change(where="operator", before=revisions[0], after=revisions[1], otherwise=otherwise, verdict=verdict)


def _code(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The pieces of code that changed; nothing if the digests of the deployed code were not recorded."""
    for name in {**before, **after} if before else ():
        if before.get(name) != after.get(name):
            yield name, "new" if name not in before else "gone" if name not in after else "changed"


def _packages(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            yield name, before[name], after[name]


def _has_code(value: object) -> bool:
    """Whether a graph holds digests of code."""
    if isinstance(value, Mapping):
        return any(_is_code(name, held) or _has_code(held) for name, held in value.items())
    return isinstance(value, list) and any(map(_has_code, value))


def _without_code(value: Any) -> Any:
    """A graph without the digests of code in it."""
    if isinstance(value, Mapping):
        return {name: _without_code(held) for name, held in value.items() if not _is_code(name, held)}
    return [_without_code(one) for one in value] if isinstance(value, list) else value


def _without_columns(graph: Node) -> Node:
    """A graph without the columns of its inputs; those that steps read or pass on are in the steps."""
    inputs = [[name, table, *others] for name, table, _, *others in graph["inputs"]]
    return {
        **graph,
        "inputs": inputs,
        "outputs": [[name, _without_read_columns(step)] for name, step in graph["outputs"]],
    }


def _without_read_columns(step: Any) -> Any:
    """A step without the columns of the inputs that it and the steps below it read."""
    if not isinstance(step, Mapping):
        return [_without_read_columns(parent) for parent in step] if isinstance(step, list) else step
    if step.get("step") == "read":
        return {"step": "read", "input": step["input"]}
    return {name: _without_read_columns(value) if name == "of" else value for name, value in step.items()}


def _is_code(name: str, value: object) -> bool:
    """Whether an entry of a step is a digest of code: that of a function, or the function of a reducing state."""
    return name in {"code", "migrate"} or (name == "function" and isinstance(value, str))


# ---- inputs and tables


def _inputs(before: Node, after: Node) -> Iterator[Change]:
    old, new = ({name: rest for name, *rest in graph["inputs"]} for graph in (before, after))
    orders = [(tuple(side), sources(graph)) for side, graph in ((old, before), (new, after))]
    if orders[0] != orders[1] and set(old) == set(new):
        texts = [
            ", ".join(f"'{name}'" for name in (read if orders[0][1] != orders[1][1] else declared))
            for declared, read in orders
        ]
        otherwise = "Positions are kept by the place of an input: rows of one would be taken for read in the other."
        yield Change(where="order of inputs", before=texts[0], after=texts[1], otherwise=otherwise, verdict="rebuild")
    for name in {**old, **new}:
        where = f"input '{name}'"
        if name not in old or name not in new:
            otherwise = "Positions are kept per input: the rows of one that was not read before would not be in the state, those of one that is gone would stay."
            texts = [f"table '{side[name][0]}'" if name in side else "" for side in (old, new)]
            yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict="rebuild")
            continue
        (table, schema, revisable), (other, columns, revised) = old[name], new[name]
        if table != other:
            otherwise = (
                "The position in one table would be taken for one in the other: rows would be skipped or read twice."
            )
            yield Change(
                where=where, before=f"table '{table}'", after=f"table '{other}'", otherwise=otherwise, verdict="rebuild"
            )
        if revisable != revised:
            kinds = ["rows may be taken back" if r else "rows are final" for r in (revisable, revised)]
            otherwise = "State that can take rows back is laid out in another way than state that cannot."
            yield Change(where=where, before=kinds[0], after=kinds[1], otherwise=otherwise, verdict="rebuild")
        yield from _columns(where, schema, columns)


def _columns(where: str, before: Sequence[Node], after: Sequence[Node]) -> Iterator[Change]:
    old, new = ({column["name"]: column for column in side} for side in (before, after))
    for name in {**old, **new}:
        was, now = old.get(name), new.get(name)
        if was == now:
            continue
        texts = [f"{name} {c['type']}{'' if c['nullable'] else ' not null'}" if c else "" for c in (was, now)]
        if was and now and was["type"] != now["type"]:
            otherwise = f"Values of '{name}' that were kept as {was['type']} would be read as {now['type']}."
            yield Change(where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict="rebuild")
        else:
            otherwise = "No step that is unchanged looks at it."
            unread = was is None and now is not None and bool(now["nullable"])
            yield Change(
                where=where,
                before=texts[0],
                after=texts[1],
                otherwise=otherwise,
                verdict="stateless change",
                unread=unread,
            )


def _tables(before: Mapping[str, Sequence[Column]], operator: Operator) -> Iterator[Change]:
    after = {output.table: output for output in operator.outputs}
    for table in {**before, **after}:
        output, where = after.get(table), f"table '{table}'"
        if output is not None and table not in before:
            yield _new_table(where, output, operator)
            continue
        if output is None:
            otherwise = "It stays as it is; nothing is added to it."
            yield Change(where=where, before="written", after="", otherwise=otherwise, verdict="stateless change")
            continue
        old, new = dict(before[table]), output.schema.types
        for name in {**old, **new}:
            if old.get(name) == new.get(name):
                continue
            texts = [f"{name} {side[name]}" if name in side else "" for side in (old, new)]
            added = name not in old
            otherwise = (
                "It is null in the rows that are there."
                if added
                else "Rows written so far have the old type; readers would find both."
            )
            verdict: Verdict = "stateless change" if added else "rebuild"
            unread = added and output.side == "late"  # late rows are whole rows of the input
            yield Change(
                where=where, before=texts[0], after=texts[1], otherwise=otherwise, verdict=verdict, unread=unread
            )


def _new_table(where: str, output: Output, operator: Operator) -> Change:
    otherwise, verdict = "It begins with the rows from now on.", _verdict(output, operator)
    if verdict == "forward-only":
        otherwise = (
            "It begins with the rows from now on: a result from before that is revised is taken back there, where it has never been. "
            f"{_WAYS}"
        )
    elif output.revisable and not output.side:
        otherwise = "It begins with the results of the windows that a late row may still revise."
    return Change(where=where, before="", after="written", otherwise=otherwise, verdict=verdict)


# ---- steps


def _outputs(before: Node, after: Node, operator: Operator) -> Iterator[Change]:
    stages = [stages_of(graph) for graph in (before, after)]
    if max(map(len, stages)) > 1:
        yield from _several(before, after, stages, operator)
        return
    old, new = ({name: path_of(step) for name, step in graph["outputs"]} for graph in (before, after))
    yield from _state(next(iter(old.values())), next(iter(new.values())), operator)
    for name in [name for name in new if name in old]:
        if (old[name].stateful is None) == (new[name].stateful is None):
            where = f"output '{name}'" if name else "result"
            yield from _stateless(where, old[name].tail, new[name].tail, operator.output(name), operator)


def _several(before: Node, after: Node, stages: Sequence[list[Node]], operator: Operator) -> Iterator[Change]:
    """Compares the stages of an operator one by one, and the steps before and behind each of them."""
    copies = [copies_of(graph) for graph in (before, after)]
    if copies[0] != copies[1]:
        names = [[repr(stage["uid"]) for stage in side] for side in stages]
        texts = [
            f"stages {', '.join(copy.describe(side) for copy in those)}"
            for those, side in zip(copies, names, strict=True)
        ]
        otherwise = "State lies by the place of its stage among the others: one would read what another has written."
        yield Change(where="operator", before=texts[0], after=texts[1], otherwise=otherwise, verdict="rebuild")
        return
    for was, now, step in zip(*stages, operator.stages, strict=True):
        nodes = [chain(apart(stage["of"], side)) for stage, side in zip((was, now), stages, strict=True)]
        yield from stateful_changes(was, now, step)
        yield from _before_state(f"before '{was['uid']}'", *map(_without_masks, nodes))
    old, new = (
        {name: chain(apart(step, side)) for name, step in graph["outputs"]}
        for graph, side in zip((before, after), stages, strict=True)
    )
    for name in [name for name in new if name in old]:
        where = f"output '{name}'" if name else "result"
        yield from _stateless(where, old[name], new[name], operator.output(name), operator)


def _state(was: Path, now: Path, operator: Operator) -> Iterator[Change]:
    """Compares the stateful step and its upstream steps. All outputs share one stateful step, so the path of any output will do."""
    if was.stateful is not None and now.stateful is not None:
        yield from stateful_changes(was.stateful, now.stateful, operator.stages[0])
        heads = [_without_masks(path.head) for path in (was, now)]
        yield from _before_state(f"before '{was.stateful['uid']}'", *heads)
    elif was.stateful is not now.stateful:
        texts = ["without state" if path.stateful is None else "with state" for path in (was, now)]
        otherwise = (
            "A stream with state and one without keep different checkpoints; neither can resume from the other's."
        )
        yield Change(where="operator", before=texts[0], after=texts[1], otherwise=otherwise, verdict="rebuild")


def _differences(before: Sequence[Node], after: Sequence[Node]) -> Iterator[tuple[str, str]]:
    old, new = before[::-1], after[::-1]  # in the order in which rows go through them
    for _, i, j, k, m in SequenceMatcher(
        None, [canonical(n) for n in old], [canonical(n) for n in new], autojunk=False
    ).get_opcodes():
        if [canonical(n) for n in old[i:j]] != [canonical(n) for n in new[k:m]]:
            yield ", ".join(map(describe, old[i:j])), ", ".join(map(describe, new[k:m]))


_WAYS = "Compute all of it anew (--rebuild); or accept it (--forward-only), where nobody reads the rows one by one, as a stream does."
"""The two fixes for results that are revised behind other steps than those that made them."""


def _verdict(output: Output, operator: Operator) -> Verdict:
    """The verdict on changed steps behind the stateful step, and on a new output."""
    return "forward-only" if output.revisable and not output.side and not restated(operator) else "stateless change"


def _stateless(
    where: str, before: Sequence[Node], after: Sequence[Node], output: Output, operator: Operator
) -> Iterator[Change]:
    for was, now in _differences(before, after):
        otherwise, verdict = "It has no state: rows from now on are made by the new code", _verdict(output, operator)
        if verdict == "forward-only":
            otherwise += (
                ". A result from before that is revised is taken back with the values that the new code gives it, or not at all where a filter "
                f"is another: who reads the rows one by one counts it wrong. {_WAYS}"
            )
            otherwise += f" {output.table}__current is right, if no filter is another." if output.current else ""
        elif output.revisable:
            otherwise += (
                ". Results that a late row may still revise are restated, in one commit: those of the old code are taken back, those of the new "
                "code put in their place. Results that are final stay."
            )
        else:
            otherwise += ", those already written stay."
        yield Change(where=where, before=was, after=now, otherwise=otherwise, verdict=verdict)


def _before_state(where: str, before: Sequence[Node], after: Sequence[Node]) -> Iterator[Change]:
    if [_without_on_error(node) for node in before] == [_without_on_error(node) for node in after]:
        otherwise = "Windows that are open hold the rows that did not fail, as before. Rows that fail from now on are treated as it says now."
        for was, now in _differences(before, after):
            yield Change(where=where, before=was, after=now, otherwise=otherwise, verdict="stateless change")
        return
    for was, now in _differences(before, after):
        otherwise = (
            "Spark would resume from the same checkpoint without a word: windows that are open hold rows as the old code let them through, "
            "and get new ones as the new code does. Their results would be neither."
        )
        yield Change(where=where, before=was, after=now, otherwise=otherwise, verdict="forward-only")


def _without_masks(nodes: Sequence[Node]) -> list[Node]:
    """Steps without the columns that hold whether a row fits the conditions of a pattern: these are part of the pattern."""
    masked = [
        node["step"] == "project" and any(name.startswith(MASK) for name, *_ in node["columns"]) for node in nodes
    ]
    return [node for node, has_masks in zip(nodes, masked, strict=True) if not has_masks]


def _without_on_error(node: Node) -> Node:
    return {name: value for name, value in node.items() if name != "on_error"}
