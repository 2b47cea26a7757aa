"""Checks the inspected rows as a landing would: how many rows would be quarantined, and why."""

from __future__ import annotations

import runpy
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from floodmark.cli.new.inference.look import Looked
from floodmark.cli.new.inference.sample import ROWS
from floodmark.connectors.judging.validation import EVENT, Rules
from floodmark.connectors.readers.files import FileReader
from floodmark.connectors.unit import Unreadable
from floodmark.core.errors import FloodmarkError
from floodmark.semantics.time.delays import Delays, Milliseconds
from floodmark.spec.rows.contract import Contract
from floodmark.spec.rows.source import BoundedOutOfOrderness, Source

_EXAMPLES = 3
_MOST = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The outcome of a first landing.

    Args:
        rows: number of rows checked.
        set_aside: number of rows that would be quarantined.
        examples: (file, row, reason) of the first of these rows.
        unreadable: why a file cannot be landed at all; empty if all files can.
        event_times: (earliest, latest) event time of the other rows, ms; None if there are no other rows.
        behind: greatest delay of a row behind the newest row before it, ms, rounded up. If that is more than twice the delay of 99% of the
            rows, the delay of 99% of the rows.
    """

    rows: int
    set_aside: int
    examples: tuple[tuple[str, int, str], ...] = ()
    unreadable: str = ""
    event_times: tuple[int, int] | None = None
    behind: int = 0


def trial(module: Path, looked: Looked) -> Trial:
    """Check the first rows against the contract that was inferred from them.

    Args:
        module: file with the contract.
        looked: result of inspecting the files.
    """
    contract: type[Contract] = runpy.run_path(str(module))[looked.contract]
    source = Source(
        looked.source, contract=contract, connector=looked.connector, watermark=BoundedOutOfOrderness("0 s")
    )
    unreadable = ""
    reader, rules = FileReader(looked.connector, contract, looked.source), Rules(source, time.time_ns() // 1_000_000)
    rows, set_aside, examples, moments = 0, 0, list[tuple[str, int, str]](), [np.array([], np.int64)]
    for unit in reader.pending({}).units:
        try:
            content = reader.open(unit)
            for batch in rules.batches(content.records(), content.form):
                rows, set_aside = rows + len(batch.rows) + len(batch.broken), set_aside + len(batch.broken)
                moments.append(batch.rows.column(EVENT).to_numpy(zero_copy_only=False))
                broken = batch.broken[: _EXAMPLES - len(examples)]
                examples += [(unit.name, row.position, row.reason) for row in broken]
                if rows >= ROWS:
                    break
        except (Unreadable, FloodmarkError) as error:
            unreadable = f"{unit.name}: {error}"
            break
        if rows >= ROWS:
            break
    times = np.concatenate(moments)
    return Trial(
        rows=rows,
        set_aside=set_aside,
        examples=tuple(examples),
        unreadable=unreadable,
        event_times=(int(times.min()), int(times.max())) if times.size else None,
        behind=_behind(times),
    )


def _behind(times: Milliseconds) -> int:
    delays = Delays.of(np.maximum.accumulate(times) - times)
    every, most = delays.bound(1), delays.bound(_MOST)
    return most if every > 2 * most else every
