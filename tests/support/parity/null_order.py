"""Which arguments Spark leaves out beside one that is null, by function and number of arguments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import permutations
from pathlib import Path

from parity import spark_side
from parity.packaged import write_table
from parity.values import SCHEMA

from floodmark.engines.embedded.parity.nulls import FILE
from floodmark.engines.embedded.parity.signatures import variadic
from floodmark.spec.expressions import expression
from floodmark.spec.expressions.tree import Call, Column
from floodmark.spec.expressions.typed import Typed

FORMS = 2
"""Forms of arguments of which each function is asked, for each type that its first one may have."""
RAISED = "!USER_RAISED_EXCEPTION"
Pair = tuple[str, int, int]
"""A function with the number of its arguments, the argument that is null, the argument that fails."""


def asked(texts: Iterable[str]) -> Iterator[tuple[Pair, str]]:
    """Calls of which one argument is null and another one fails, for every two places."""
    forms: dict[tuple[str, str], int] = defaultdict(int)
    for text in texts:
        tree = expression(text, SCHEMA, "parity").tree
        columns = [child.column for child in tree.children if isinstance(child.node, Column)]
        if not isinstance(tree.node, Call) or len(columns) < len(tree.children) or len(set(columns)) < len(columns):
            continue
        if variadic(tree.node.name) or tree.node.name == "concat":  # which leaves out arrays, and no texts
            continue
        name = f"{tree.node.name}/{len(columns)}"
        if len(columns) < 2 or forms[name] == FORMS:
            continue
        forms[name] += 1
        for null, failing in permutations(range(len(columns)), 2):
            yield (name, null, failing), _with(text, tree, null, failing)


def _with(text: str, tree: Typed, null: int, failing: int) -> str:
    """A call of columns with one of them null and another one an error, for every row; Spark sees neither before it computes a row."""
    first, second = tree.children[null], tree.children[failing]
    marks = text.replace(first.column, "\0").replace(second.column, "\1")
    return marks.replace("\0", f"IF(r < 0, {first.column}, NULL)").replace(
        "\1", f"IF(r >= 0, CAST(raise_error('x') AS {second.type}), {second.column})"
    )


def order_of(answers: Iterable[tuple[Pair, str]]) -> dict[str, dict[int, list[int]]]:
    """Function -> argument -> those beside which it is left out where one of them is null.

    Args:
        answers: of Spark to each call, as ``Answers.java`` writes them.
    """
    found: dict[Pair, set[bool]] = defaultdict(set)
    for pair, answer in answers:
        _, *rows = answer.split("\t")
        if RAISED in rows:
            found[pair].add(False)
        elif "null" in rows:
            found[pair].add(True)
    order: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for (name, null, failing), seen in sorted(found.items()):
        if seen == {True}:
            order[name][failing].append(null)
    return order


def write(spark: object, folder: Path, texts: Iterable[str], names: Collection[str] = ()) -> None:
    """The package's file, of all functions or of some with the others as they are.

    Args:
        spark: a classic session.
        folder: with the tables.
        texts: expressions that Spark computes.
        names: of functions; all if empty.
    """
    calls = list(asked(texts))
    said = spark_side.answers(spark, folder / "one.parquet", [text for _, text in calls], folder)
    found: Mapping[str, Mapping[int, list[int]]] = order_of(zip((pair for pair, _ in calls), said, strict=True))
    write_table(FILE, found, lambda call: call.rpartition("/")[0], names)
