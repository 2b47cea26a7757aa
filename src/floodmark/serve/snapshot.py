"""Snapshots: all results of an output as of one commit. A snapshot never changes; a newer one takes its place."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa

from floodmark.core.time import describe
from floodmark.semantics.encoding.dates import row_of
from floodmark.serve.runs import Key, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """Of which moment an answer is.

    Args:
        output: name of the output.
        table: id of its table; another one if it was made anew.
        commit: version of the table.
        committed_at: time of that commit, ms UTC.
        watermark: progress of the output at that commit, ms UTC.
        version: version of the operator that wrote the commit, ``hourly@3f9a2c1b``; empty if the commit does not say.
        batch: micro-batch of the commit; None for another kind of run.
        savepoint: the savepoint that was asked for; empty for the last commit.
    """

    output: str
    table: str
    commit: int
    committed_at: int
    watermark: int
    version: str = ""
    batch: int | None = None
    savepoint: str = ""

    def as_json(self, now: int, checked: int) -> dict[str, Any]:
        """As answers tell it.

        Args:
            now: the clock, ms UTC.
            checked: when the log was last seen to have no commit that is not in the answer, ms UTC.
        """
        return {
            "output": self.output,
            "table_id": self.table,
            "commit": self.commit,
            "committed_at": describe(self.committed_at),
            "watermark": describe(self.watermark),
            "watermark_ms": self.watermark,
            "version": self.version,
            "batch": self.batch,
            "savepoint": self.savepoint or None,
            "age_seconds": round(max(0, now - self.committed_at) / 1000, 3),
            "behind_seconds": None if self.savepoint else round(max(0, now - checked) / 1000, 3),
        }


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The results of an output as of one commit.

    Args:
        as_of: the commit.
        runs: newest first; what a newer one has of a key is in place of what older ones have.
        names: columns of a result.
    """

    as_of: AsOf
    runs: tuple[Run, ...]
    names: tuple[str, ...]

    @property
    def asked(self) -> str:
        """What is asked: the output."""
        return self.as_of.output

    def get(self, key: Key) -> dict[str, Any] | None:
        """The result of a key; None if there is none."""
        for run in self.runs:
            row = run.find(key)
            if row is not None:
                batch, number, has = row
                return row_of(batch, number, self.names) if has else None
        return None

    def page(self, lower: Key, upper: Key, limit: int) -> tuple[list[dict[str, Any]], Key | None]:
        """The first results with lower <= key < upper in the order of keys, and the key of the next result; None for none."""
        rows: list[dict[str, Any]] = []
        for key, batch, number in self._merged(lower, upper):
            if len(rows) == limit:
                return rows, key
            rows.append(row_of(batch, number, self.names))
        return rows, None

    def _merged(self, lower: Key, upper: Key) -> Iterator[tuple[Key, pa.RecordBatch, int]]:
        streams = [
            ((key, age, batch, number, has) for key, batch, number, has in run.between(lower, upper))
            for age, run in enumerate(self.runs)
        ]
        merged = heapq.merge(*streams, key=lambda row: row[:2])
        for key, same in groupby(merged, key=lambda row: row[0]):
            _, _, batch, number, has = next(same)
            if has:
                yield key, batch, number
