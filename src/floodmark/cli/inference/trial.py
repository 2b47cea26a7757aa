"""The rows that were looked at, checked as a landing checks them: how many would be set aside, and why."""

from __future__ import annotations

import runpy
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from floodmark.cli.inference.look import Looked
from floodmark.cli.inference.sample import ROWS
from floodmark.connectors.files import FileReader
from floodmark.connectors.unit import Unreadable
from floodmark.connectors.validation import EVENT, Rules
from floodmark.core.errors import FloodmarkError
from floodmark.semantics.delays import Delays, Milliseconds
from floodmark.spec.contract import Contract
from floodmark.spec.source import BoundedOutOfOrderness, Source

_EXAMPLES = 3
_MOST = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a first landing would do.

    Args:
        rows: checked.
        set_aside: of them.
        examples: (file, row, reason) of the first ones.
        unreadable: why a file cannot be landed at all; empty when all can.
        event_times: the earliest and the latest of the others, in milliseconds; None where no row is left.
        behind: milliseconds by which they come behind the newest row before them, rounded up; without the last row in a hundred if
            that is behind by more than twice as much as the others.
    """

    rows: int
    set_aside: int
    examples: tuple[tuple[str, int, str], ...] = ()
    unreadable: str = ""
    event_times: tuple[int, int] | None = None
    behind: int = 0


def trial(module: Path, looked: Looked) -> Trial:
    """Check the first rows against the contract that was written for them.

    Args:
        module: with the contract.
        looked: what was seen in the files.
    """
    contract: type[Contract] = runpy.run_path(str(module))[looked.contract]
    source = Source(
        looked.source, contract=contract, connector=looked.connector, watermark=BoundedOutOfOrderness("0 s")
    )
    unreadable = ""
    reader, rules = FileReader(looked.connector, contract, looked.source), Rules(source, time.time_ns() // 1_000_000)
    rows, set_aside, examples, moments = 0, 0, list[tuple[str, int, str]](), [np.array([], np.int64)]
    for unit in reader.pending({})[0]:
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
