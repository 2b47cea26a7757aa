"""Regular joins: all pairs of rows with equal keys, however far apart in time; a later row, or a retraction, changes what was emitted."""

from __future__ import annotations

from floodmark.core.fingerprint import form
from floodmark.core.time import describe_span
from floodmark.spec.expressions.typed import Typed
from floodmark.spec.keyed.matching import Places
from floodmark.spec.keyed.process import StatefulFunction
from floodmark.spec.keyed.state import ListState
from floodmark.spec.rows.kinds import Kind


class RegularJoin(StatefulFunction):
    """Settings of a regular join; ``semantics.kernels.functions.regular`` computes it.

    State is the rows of both sides, each with its event time and how often it came: rows are a multiset per side. The rows that a retraction
    or a row without a partner has are emitted with their own event time, pairs with the later of their two.

    Args:
        kind: of the join: which rows without a partner are emitted.
        places: per side, (column of its rows, column of the result), keys left out.
        condition: Spark SQL over the keys and both sides' columns by their names in the result; empty for none.
        tree: of the condition.
        ttl: greatest distance of the event times of a pair, and how late a row may be, ms; None for no bound.
    """

    revises = True
    multiset = True
    unordered = True
    left = ListState(Kind("row"))
    right = ListState(Kind("row"))

    def __init__(self, kind: str, places: Places, condition: str, tree: Typed | None, ttl: int | None) -> None:
        self.kind, self.places, self.condition, self.tree, self.ttl = kind, places, condition, tree, ttl

    def canonical(self) -> dict[str, object]:
        """Name and settings; in place of its code in fingerprints."""
        settings = {"kind": self.kind, "on": self.condition, "ttl": self.ttl, "columns": form(self.places)}
        return {"name": "regular_join", "settings": settings, "states": self.layout()}

    @property
    def takes_back(self) -> bool:
        """Always True: a retraction takes back the pairs of its row."""
        return True

    def describe_state(self) -> str:
        """How long rows stay in the state, in words."""
        if self.ttl is None:
            return "state: every row of both sides, for ever"
        length = describe_span(self.ttl)
        return f"state: rows of both sides for twice {length}; pairs are at most {length} apart, rows that come later than that are dropped and counted"
