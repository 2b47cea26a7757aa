"""Which casts Spark makes of arguments, by function, number of arguments, place and type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from parity import spark_side
from parity.packaged import write_table
from parity.values import SCHEMA

from floodmark.engines.embedded.parity.implicit import FILE, places_of
from floodmark.engines.embedded.parity.signatures import general
from floodmark.spec.expressions import expression
from floodmark.spec.expressions.tree import Call, Column
from floodmark.spec.expressions.widening import FLOATS, INTEGERS

PAIRS = frozenset(
    {
        "between",
        "in",
        "and",
        "concat",
        "or",
        "not",
        "coalesce",
        "ifnull",
        "nvl",
        "nvl2",
        "if",
        "nullif",
        "array",
        "map",
        "greatest",
        "least",
    }
)
"""Functions that widen arguments to the type of others; their rewrites do so, as those of operators."""


def asked(texts: Iterable[str]) -> list[str]:
    """Calls of columns, of which Spark is asked; none of operators."""
    found = []
    for text in texts:
        tree = expression(text, SCHEMA, "parity").tree
        if isinstance(tree.node, Call) and tree.node.name.isidentifier() and tree.node.name not in PAIRS:
            columns = [child.column for child in tree.children if isinstance(child.node, Column)]
            if columns and len(columns) == len(set(columns)):
                found.append(text)
    return found


def of_places(casts: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The file's content: where a type is cast to another one in one call and stays as it is in others, it is left out.

    Args:
        casts: expression -> its columns and their casts, as ``Casts.java`` writes them.
    """
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for text, answer in casts.items():
        tree = expression(text, SCHEMA, "parity").tree
        assert isinstance(tree.node, Call), text
        made = dict(part.split("=", 1) for part in answer.split("\t")) if answer else {}
        for place, child in zip(places_of(tree.node.name, len(tree.children)), tree.children, strict=True):
            if child.column in made:
                found[place][general(child.type)].add(made[child.column])
    single = {place: {kind: min(to) for kind, to in kinds.items() if len(to) == 1} for place, kinds in found.items()}
    told = {
        place: {kind: to for kind, to in sorted(kinds.items()) if _other(kind, to, place)}
        for place, kinds in single.items()
    }
    return {place: kinds for place, kinds in sorted(told.items()) if kinds}


def _other(source: str, target: str, name: str) -> bool:
    """Whether a cast is one that Sail may make otherwise; a wider number is the same number."""
    if not target or "?" in target or target.count(",") > target.startswith("decimal") or "<" in source + target:
        return False
    if source == "string":
        return not name.startswith("try_")  # a cast that fails is null there
    if source in INTEGERS:
        return target not in {*INTEGERS, *FLOATS} and not target.startswith("decimal")
    exact = target in INTEGERS or target.startswith("decimal")
    return target == "string" or (source in FLOATS and exact) or (source.startswith("decimal") and target in INTEGERS)


def write(spark: object, folder: Path, texts: Iterable[str], names: Collection[str] = ()) -> None:
    """The package's file, of all functions or of some with the others as they are.

    Args:
        spark: a classic session.
        folder: with the tables.
        texts: expressions that Spark computes.
        names: of functions; all if empty.
    """
    calls = asked(texts)
    said = spark_side.casts(spark, folder / "two.parquet", calls, folder)
    found = of_places(dict(zip(calls, said, strict=True)))
    write_table(FILE, found, lambda place: place.partition("/")[0], names)
