"""Debezium: settings of a source whose rows are changes of a table, in Debezium's envelope. Frozen, without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from floodmark.core.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class Debezium:
    """Each message, or row of a file, is a change in Debezium's envelope: ``before``, ``after``, ``op``, ``source``.

    Seven fields are added to each row, which a contract may read: ``_change_type`` (``insert``, ``update_postimage``, ``delete``), ``_op`` (``"c"``, ``"u"``, ``"d"``, ``"r"`` for rows of a snapshot), ``_table``
    (``"shop.public.orders"``), ``_changed_at`` (ms since 1970, by the database), ``_order`` (a text that orders the changes as the database's log does),
    ``_transaction`` and ``_snapshot``.

    Time: lateness of a retraction is decided by the event time of the row that is retracted, as for any row.

    Args:
        read: ``"changes"``: the input is what the table holds: a delete retracts the row, an update retracts the old row and inserts the new one.
            It needs the whole row in ``before`` (PostgreSQL: ``ALTER TABLE ... REPLICA IDENTITY FULL``). ``"events"``: every change is a row of
            its own: the row after it, of a delete the row before it.

    Raises:
        DefinitionError: DEFINITION-315, another reading.

    Source: Debezium, data change events of its connectors.
    """

    added: ClassVar[frozenset[str]] = frozenset(
        {"_change_type", "_op", "_table", "_changed_at", "_order", "_transaction", "_snapshot"}
    )

    read: Literal["changes", "events"] = "changes"

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.read not in {"changes", "events"}:
            fix = 'Debezium(read="changes") for what the table holds, Debezium(read="events") for its history.'
            raise DefinitionError(
                "Debezium, read", '"changes" or "events"', repr(self.read), fix, code="DEFINITION-315"
            )

    def meaning(self) -> dict[str, Any]:
        """Which changes are rows, for the canonical form of a source."""
        return {"read": self.read}
