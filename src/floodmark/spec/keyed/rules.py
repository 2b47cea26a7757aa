"""Rules that change while a stream runs: each row once per rule that is valid at its event time, with the rule's columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from floodmark.core.fingerprint import form
from floodmark.spec.keyed.matching import DELETED
from floodmark.spec.keyed.process import Context, Row, StatefulFunction
from floodmark.spec.keyed.state import BroadcastState
from floodmark.spec.rows.kinds import Kind


class Ruling(StatefulFunction):
    """Joins rows with all rules that are valid at their event time. Input is in order of event time, rules before rows of the same time.

    Args:
        key: column by which a rule is one: a later row of the same value replaces the rule.
        columns: (column of a rule, column of the result).
    """

    rules = BroadcastState(str, Kind("rule"))

    def __init__(self, key: str, columns: tuple[tuple[str, str], ...]) -> None:
        self.key, self.columns = key, columns

    def canonical(self) -> dict[str, object]:
        """Name and settings; in place of its code in fingerprints."""
        about = {"key": self.key, "columns": form(self.columns)}
        return {"name": "with_rules", "settings": about, "states": self.layout()}

    def on_broadcast(self, row: Row, ctx: Context) -> None:  # noqa: ARG002 - the protocol's
        """A rule is valid from now on in its new form, or no more."""
        name = repr(row[self.key])
        if row[DELETED]:
            self.rules.remove(name)
        else:
            self.rules.put(name, {target: row[column] for column, target in self.columns})

    def on_element(self, row: Row, ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """The row once per rule, in the order of the rules' names."""
        for name in sorted(self.rules.keys()):
            yield {**row, **self.rules.get(name)}
