"""Gates: asset partitions of an output that readers may not take in, because a blocking check of them has failed. Kept beside the table, in a file per gate.

Closing writes one file, releasing a gate writes one file and removes one: a process that is killed in between leaves the gate closed, and its release can be
repeated.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.core.fingerprint import digest
from floodmark.core.time import END, Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import files, read, remove, write
from floodmark.lake.results import verdicts
from floodmark.lake.results.needs import reads
from floodmark.lake.results.own_stream import Shortfall
from floodmark.lake.table.entries import beside
from floodmark.spec.graph.operator import Operator

_CLOSED, _RELEASED = "gates", "gates_released"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A gate.

    Args:
        table: name of the output's table.
        partition: name of the asset partition; ``first...last`` of several that were checked together, ``all`` of a table that is not divided.
        start: first instant of its event time, ms.
        end: first instant after its event time, ms.
        check: name of the failed check.
        reason: how it failed.
        at: time at which it was closed, s since 1970.
    """

    table: str
    partition: str
    start: int
    end: int
    check: str
    reason: str
    at: float

    @property
    def interval(self) -> Interval:
        """Event time of the partition."""
        return Interval(start=self.start, end=self.end)

    def describe(self) -> str:
        """``partition 2025-03-01 of 'hourly': check 'many' failed: ...``."""
        return f"partition {self.partition} of '{self.table}': check '{self.check}' failed: {self.reason}"

    @property
    def _name(self) -> str:
        """Of its file: closing it again replaces the file."""
        return f"{digest([self.partition, self.check])[:16]}.json"


def gate(table: str, partition: str, interval: Interval, check: str, reason: str) -> Gate:
    """A gate that is closed now."""
    return Gate(
        table=table,
        partition=partition,
        start=interval.start,
        end=interval.end,
        check=check,
        reason=reason,
        at=time.time(),
    )


def close(path: str, closing: Gate) -> None:
    """Close a gate of the table at a path."""
    crash.point("gate.before_close")
    write(f"{beside(path, _CLOSED)}/{closing._name}", json.dumps(asdict(closing)).encode())  # noqa: SLF001 - of this module
    crash.point("gate.after_close")


def closed(path: str) -> list[Gate]:
    """The closed gates of the table at a path, earliest partition first."""
    folder = beside(path, _CLOSED)
    contents = [read(f"{folder}/{name}") for name in files(folder) if name.endswith(".json")]
    gates = [Gate(**json.loads(content)) for content in contents if content is not None]
    return sorted(gates, key=lambda one: (one.start, one.end, one.check))


def release(path: str, gates: Iterable[Gate], *, who: str, why: str) -> list[Gate]:
    """Release gates of the table at a path, and keep who did it and why. Returns them."""
    released = list(gates)
    for releasing in released:
        record = asdict(releasing) | {"released_at": time.time(), "who": who, "why": why}
        crash.point("gate.before_release")
        write(f"{beside(path, _RELEASED)}/{releasing._name}", json.dumps(record).encode())  # noqa: SLF001 - of this module
        crash.point("gate.after_record")
        remove(f"{beside(path, _CLOSED)}/{releasing._name}")  # noqa: SLF001 - as above
        crash.point("gate.after_release")
    return released


def passed(path: str, check: str, interval: Interval) -> list[Gate]:
    """Release the gates of a check that was passed over an interval. Returns them."""
    inside = [g for g in closed(path) if g.check == check and interval.holds(g.interval)]
    return release(path, inside, who="a check", why="the check was passed when it was repeated")


def touching(operator: Operator, lake: Lake, interval: Interval) -> list[Gate]:
    """The closed gates of the inputs of an operator because of which results of an interval may not be computed."""
    needed = reads(operator, interval)
    gates = [
        one
        for operator_input in operator.inputs
        if operator_input.upstream
        for one in closed(lake.input(operator_input))
    ]
    return [one for one in gates if needed.meets(one.interval)]


def shortfalls(operator: Operator, lake: Lake, interval: Interval) -> list[Shortfall]:
    """The closed gates that affect an interval, and the rows that wait for a verdict, as shortfalls of the inputs."""
    return [
        *verdicts.held(operator, lake, interval),
        *(
            Shortfall(table=one.table, reached=-END, missing=(one.interval,), text=one.describe())
            for one in touching(operator, lake, interval)
        ),
    ]


def check_open(operator: Operator, lake: Lake, intervals: Iterable[Interval]) -> None:
    """Check that no gate of an input is closed for some results, and that none of their rows waits for a verdict.

    Raises:
        LifecycleError: LIFECYCLE-197 one is closed, LIFECYCLE-207 some rows wait.
    """
    chosen = list(intervals)
    for interval in chosen:
        for gate_of_input in touching(operator, lake, interval)[:1]:
            where = f"operator '{operator.name}' over {interval}"
            expected = f"inputs without a closed gate, such as that of {gate_of_input.table}"
            raise LifecycleError(
                where, expected, gate_of_input.describe(), release_fix(gate_of_input), code="LIFECYCLE-197"
            )
    verdicts.check_judged(operator, lake, chosen)


def release_fix(closed_gate: Gate) -> str:
    """How a gate is released."""
    name = closed_gate.table.partition("__")[0]
    return (
        f"Mend the rows and check them again, or release it: floodmark gate release {name} --partition {closed_gate.partition} --reason ..., "
        "or job release_gate."
    )
