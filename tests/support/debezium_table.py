"""A table of a database, and the changes of it as Debezium sends them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kafka_topic import BASE

Sent = tuple[int, dict[str, Any] | None]
"""Key and envelope of a message; None for a tombstone."""


@dataclass
class Database:
    """A table whose transactions overlap, as the log of PostgreSQL has them: sent at their ends, numbered where they were written."""

    drawn: random.Random
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    position: int = 100
    ended: int = 0
    count: int = 0

    def row(self, number: int) -> dict[str, Any]:
        self.count += 1
        return {
            "id": number,
            "at": BASE + self.drawn.randrange(60_000),
            "amount": self.drawn.randrange(100),
            "rev": self.count,
        }

    def source(self, lsn: int, snapshot: str = "false") -> dict[str, Any]:
        sequence = json.dumps([str(self.ended) if self.ended else None, str(lsn)])
        return {
            "connector": "postgresql",
            "name": "shop",
            "db": "shop",
            "schema": "public",
            "table": "orders",
            "lsn": lsn,
            "sequence": sequence,
            "snapshot": snapshot,
            "ts_ms": BASE + 1_000 * self.count,
        }

    def snapshot(self) -> Iterator[Sent]:
        for number, row in sorted(self.rows.items()):
            yield number, {"op": "r", "before": None, "after": row, "source": self.source(self.position, "true")}

    def transactions(self, size: int) -> list[list[Sent]]:
        """Some transactions in the order of their ends; the key and the envelope of each message, None for a tombstone."""
        begun = [[self.position + 10 * n + own for own in range(self.drawn.randint(1, 4))] for n in range(size)]
        self.position += 10 * size + 10
        self.drawn.shuffle(begun)  # the order in which they end
        sent = []
        for lsns in begun:
            messages: list[Sent] = []
            for lsn in lsns:
                messages += self.changed(lsn)
            sent.append(messages)
            self.position += 1
            self.ended = self.position
        return sent

    def changed(self, lsn: int) -> list[Sent]:
        number, source = self.drawn.randrange(20), self.source(lsn)
        before = self.rows.get(number)
        if before is None:
            self.rows[number] = after = self.row(number)
            return [(number, {"op": "c", "before": None, "after": after, "source": source})]
        kind = self.drawn.random()
        if kind < 0.3:
            del self.rows[number]
            return [(number, {"op": "d", "before": before, "after": None, "source": source}), (number, None)]
        if kind < 0.5 and (free := [n for n in range(20) if n not in self.rows]):  # its key changes
            del self.rows[number]
            self.rows[free[0]] = after = {**self.row(free[0])}
            deleted = {"op": "d", "before": before, "after": None, "source": source}
            return [
                (number, deleted),
                (number, None),
                (free[0], {"op": "c", "before": None, "after": after, "source": source}),
            ]
        self.rows[number] = after = self.row(number)
        return [(number, {"op": "u", "before": before, "after": after, "source": source})]
