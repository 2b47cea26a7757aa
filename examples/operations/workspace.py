"""Operations: raw logs become statistics of each minute, statistics become novelties: an outlier, or a machine that is new or gone.

The detector is Bayesian: what it believes of the normal rate of a machine is state, and follows what becomes normal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from floodmark import (
    BoundedOutOfOrderness,
    Context,
    Contract,
    EventTime,
    Files,
    ProcessFunction,
    Settings,
    Source,
    Stream,
    Timer,
    Tumbling,
    ValueState,
    Workspace,
    count,
    mean,
    operator,
    sum,
)

MINUTE = 60_000
FORGETS = 0.98
"""Weight of what is believed after a minute: what was normal an hour ago counts a third."""
SURPRISE = 6.0
"""Standard deviations from what is believed that make a minute a novelty."""


class Line(Contract):
    """A line of a log."""

    at: EventTime
    machine: str
    level: str
    milliseconds: float


class Novelty(Contract):
    """What an operator should look at."""

    kind: str
    lines: int
    surprise: float


class Novelties(ProcessFunction):
    """A gamma distribution over the lines that a machine writes in a minute: ``shape`` lines are believed to have been seen in ``minutes``."""

    shape, minutes = ValueState(float), ValueState(float)
    quiet = Timer()

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:
        """The statistic of a minute."""
        lines = row["lines"]
        shape, minutes = self.shape.get(), self.minutes.get()
        if shape is None or minutes is None:
            yield {"kind": "new machine", "lines": lines, "surprise": 0.0}
            shape, minutes = float(lines), 1.0
        else:
            expected, spread = shape / minutes, math.sqrt(shape / minutes * (1 + 1 / minutes))
            surprise = (lines - expected) / max(spread, 1.0)
            if abs(surprise) > SURPRISE:
                yield {"kind": "outlier", "lines": lines, "surprise": surprise}
            shape, minutes = FORGETS * shape + lines, FORGETS * minutes + 1
        self.shape.update(shape)
        self.minutes.update(minutes)
        self.quiet.delete()
        self.quiet.set(ctx.timestamp + 10 * MINUTE)

    def on_timer(self, timer: str, ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """Ten minutes without a line: the next one is of a new machine."""
        self.shape.clear()
        self.minutes.clear()
        yield {"kind": "machine gone", "lines": 0, "surprise": 0.0}


lines = Source(
    "lines",
    contract=Line,
    connector=Files("inbox", format="json", min_age="0 s"),
    watermark=BoundedOutOfOrderness("10 minutes"),
)


@operator
def statistics(lines: Stream[Line]) -> Stream:
    """Lines, errors and mean duration of a minute of each machine."""
    told = lines.with_columns(error="CAST(level = 'ERROR' AS int)")
    minutes = told.key_by("machine").window(Tumbling("1 minute"))
    return minutes.aggregate(lines=count(), errors=sum("error"), milliseconds=mean("milliseconds"))


@operator(inputs={"minutes": statistics})
def novelties(minutes: Stream) -> Stream:
    """Minutes that are unlike those before, machines that are new and machines that are gone."""
    return minutes.key_by("machine").process(Novelties(), schema=Novelty)


def workspace(environment: str = "dev") -> Workspace:
    """One source, two operators in a chain."""
    engine = "embedded" if environment == "dev" else "spark"
    return Workspace(sources=[lines], operators=[statistics, novelties], settings=Settings(engine=engine))
