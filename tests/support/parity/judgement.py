"""From outcomes of single expressions to what is let through: a signature is, if every expression of it came out alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from parity.comparison import CHANCE
from parity.outcome import Outcome
from parity.values import SCHEMA, tree_of

from floodmark.engines.embedded.parity import casts
from floodmark.engines.embedded.parity.rewrites import rewritten
from floodmark.engines.embedded.parity.signatures import signatures, whole
from floodmark.engines.embedded.parity.table import parted
from floodmark.engines.embedded.parity.table import table as kept_table
from floodmark.spec.expressions import expression
from floodmark.spec.expressions.tree import Cast
from floodmark.spec.expressions.typed import Typed

RANK = {"agrees": 0, "rewritten": 1, "close": 2, "refused": 3}


@dataclass(slots=True)
class Judged:
    """What is known of one signature.

    Args:
        verdict: ``agrees``, ``rewritten``, ``close`` (floats alike to twelve digits) or ``refused``.
        text: an expression; of a refusal one that differs.
        outcome: of that expression.
    """

    verdict: str = "agrees"
    text: str = ""
    outcome: Outcome | None = None

    def add(self, text: str, outcome: Outcome, changed: bool) -> None:
        """One more expression of the signature."""
        verdict = {"same": "rewritten" if changed else "agrees", "close": "close", "differs": "refused"}[
            outcome.verdict
        ]
        worse = RANK[verdict] > RANK[self.verdict]
        better = (
            verdict == self.verdict
            and outcome.spark != "null"
            and self.outcome is not None
            and self.outcome.spark == "null"
        )
        if worse or self.outcome is None or better:
            self.text, self.outcome = text, outcome
        self.verdict = verdict if worse else self.verdict


def judged(found: Mapping[str, Outcome], *, named: Collection[str] = ()) -> dict[str, Judged]:
    """Signature -> verdict. An expression that differs counts against its outermost node alone, and only if the nodes in it are let through.

    Args:
        found: expression -> outcome.
        named: functions that were compared, if not all were; the package's table says which others are let through.
    """
    found = {text: one for text, one in found.items() if not one.sail.startswith("not asked") and _pure(text)}
    trees = {text: tree_of(text) for text in found}
    table: dict[str, Judged] = {}
    waiting = sorted(found, key=lambda text: _depth(trees[text]))
    for text in waiting:
        tree = trees[text]
        outcome = found[text]
        if outcome.verdict == "differs" and not all(
            passes(table, pair, named) for child in tree.children for _, pair in whole(child)
        ):
            continue
        if (
            outcome.sail.startswith("!")
            and outcome.verdict == "differs"
            and tree != expression(text, SCHEMA, "parity").tree
        ):
            continue  # a cast that Spark makes by itself fails, not the call
        for exact, _ in signatures(tree):
            table.setdefault(exact, Judged()).add(text, outcome, changed(tree))
    pairs = {pair for tree in trees.values() for pair in signatures(tree)}
    redundant = {
        exact
        for exact, plain in pairs
        if exact != plain and plain in table and exact in table and table[plain].verdict == table[exact].verdict
    }
    return {name: one for name, one in table.items() if name not in redundant}


def _pure(text: str) -> bool:
    return text in CHANCE or expression(text, SCHEMA, "parity").pure


def changed(tree: Typed) -> bool:
    """Whether Sail is asked the outermost node in other words."""
    if isinstance(tree.node, Cast):
        return casts.rewritten(tree.children[0].type, tree.node.type, attempt=tree.node.attempt)
    return rewritten(tree)


def passes(table: Mapping[str, Judged], pair: tuple[str, str], named: Collection[str] = ()) -> bool:
    """Whether a node's signature is let through."""
    one = table.get(pair[0]) or table.get(pair[1])
    if one is None and named and parted(pair[0])[0] not in named:
        return kept_table().verdict(*pair) not in {None, "refused"}
    return one is not None and one.verdict != "refused"


def _depth(tree: Typed) -> int:
    return 1 + max((_depth(child) for child in tree.children), default=0)
