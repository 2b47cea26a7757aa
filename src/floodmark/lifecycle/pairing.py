"""Whether the rows of two versions of an operator can be paired, decided from their definitions before any arm runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from floodmark.compiler.describe import window
from floodmark.compiler.paths import Node
from floodmark.core.errors import LifecycleError
from floodmark.lifecycle.plan import Deployed, stateful_step
from floodmark.spec.assets.rollout import PromoteWhen
from floodmark.spec.graph.operator import Operator

SIDES = ("__late", "__quarantine", "__current")
"""Suffixes of tables that are not compared: they hold side outputs, not results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The tables that a version writes, according to its definition.

    Args:
        graph: of the operator, in its canonical form.
        tables: output -> column -> type.
        keys: output whose results are revised -> the columns that identify a result.
    """

    graph: Node
    tables: Mapping[str, Mapping[str, str]]
    keys: Mapping[str, tuple[str, ...]]

    @staticmethod
    def of(operator: Operator) -> Results:
        """The results of an operator's definition."""
        return Results(
            graph=operator.canonical(),
            tables={output.table: dict(output.schema.types) for output in operator.outputs},
            keys={output.table: output.keys for output in operator.outputs if output.current},
        )

    @staticmethod
    def deployed(version: Deployed, keys: Mapping[str, tuple[str, ...]]) -> Results:
        """The results of a stream.

        Args:
            version: the deployed definition of the stream.
            keys: output whose results are revised -> the columns that identify a result.
        """
        return Results(
            graph=version.graph, tables={table: dict(own) for table, own in version.tables.items()}, keys=keys
        )

    @property
    def compared(self) -> Mapping[str, Mapping[str, str]]:
        """The tables without side outputs."""
        return {table: columns for table, columns in self.tables.items() if not table.endswith(SIDES)}


def check_paired(where: str, operator: str, before: Results, after: Results, rule: PromoteWhen) -> None:
    """Checks that a rule can ever hold: the new version must have the grain and the columns of the running version.

    Args:
        where: for errors.
        operator: its name.
        before: results of the running version.
        after: results of the version that may replace it.
        rule: conditions of the promotion.

    Raises:
        LifecycleError: LIFECYCLE-112, some guardrail of the rule could never hold; all such reasons are named.
    """
    problems = [*_grain(before.graph, after.graph, rule), *_tables(before, after), *_named(before, rule)]
    if problems:
        fix = (
            f"Change the code or the rule; PromoteWhen(match=0) lets windows be others. Or replace the stream without a comparison: "
            f"floodmark apply {operator}, with --rebuild where floodmark plan {operator} says so."
        )
        expected = "rows that can be paired with those of the stream, and all of its columns"
        raise LifecycleError(where, expected, "; ".join(problems), fix, code="LIFECYCLE-112")


def check_sampled(where: str, versions: Mapping[str, Results]) -> None:
    """Checks that the same keys can be sampled in several versions: every version is keyed, and all by the same columns.

    Args:
        where: for errors.
        versions: by name; the first is the reference of the others.

    Raises:
        LifecycleError: LIFECYCLE-116, a version has no key, or other keys than the first.
    """
    first, *others = versions.items()
    keys = (stateful_step(first[1].graph) or {}).get("keys", ())
    problems = [] if keys else [f"{first[0]} has {_keyed(stateful_step(first[1].graph))}"]
    for name, other in others:
        key_difference = other_keys(first[1].graph, other.graph)
        problems += [f"{name} has {key_difference}"] if key_difference else []
        problems += [
            f"{name} has {table}.{key} as {types[key]}, and not {first[1].tables[table][key]}"
            for table, types in other.compared.items()
            for key in keys
            if not key_difference and table in first[1].tables and types.get(key) != first[1].tables[table].get(key)
        ]
    if problems:
        fix = "Let them run over all keys: leave --sample out, or the ramp of a rollout."
        raise LifecycleError(
            where, "versions with one and the same key", "; ".join(problems), fix, code="LIFECYCLE-116"
        )


def other_keys(before: Node, after: Node) -> str:
    """The keys of the second version if they differ from the first version's, in words; ``""`` if both have the same keys.

    Args:
        before: the graph of the first version, in its canonical form.
        after: the graph of the second version, likewise.
    """
    old, new = (_keyed(stateful_step(graph)) for graph in (before, after))
    return "" if old == new else f"{new}, and not {old}"


def _grain(before: Node, after: Node, rule: PromoteWhen) -> Iterator[str]:
    old, new = stateful_step(before), stateful_step(after)
    if key_difference := other_keys(before, after):
        yield key_difference
    was, now = ((step or {}).get("window") for step in (old, new))
    if rule.match > 0 and was is not None and now is not None and _apart(was, now):
        yield f"{window(now)}, of which no window is one of {window(was)}"


def _keyed(step: Node | None) -> str:
    if step is None:
        return "rows without a key"
    return f"rows per {', '.join(step.get('keys', ())) or 'nothing'}"


def _apart(before: Node, after: Node) -> bool:
    """Whether no window of the first form is ever a window of the second."""
    lengths = [form["size"] if form["kind"] in {"Tumbling", "Sliding"} else None for form in (before, after)]
    units = [form.get("unit") for form in (before, after)]
    kinds = {before["kind"], after["kind"]}
    shifted = kinds == {"Tumbling"} and (before["offset"] - after["offset"]) % before["size"] != 0
    return (None not in lengths and lengths[0] != lengths[1]) or (None not in units and units[0] != units[1]) or shifted


def _tables(before: Results, after: Results) -> Iterator[str]:
    for table, columns in before.compared.items():
        if table not in after.tables:
            yield f"no output '{table}'"
            continue
        keys = after.keys.get(table, ())
        if keys and "window_end" not in keys:
            yield f"rows of '{table}' that replace earlier ones of the same {', '.join(keys)} at any later time"
        for name, kind in columns.items():
            now = after.tables[table].get(name)
            if now is None:
                yield f"no column '{name}' in '{table}'"
            elif now != kind:
                yield f"'{name}' of '{table}' as {now}, and not {kind}"


def _named(before: Results, rule: PromoteWhen) -> Iterator[str]:
    known = {name for columns in before.compared.values() for name in columns}
    for name in (*rule.columns, *rule.means):
        if name not in known:
            yield f"a rule about '{name}', a column that the stream does not have"
