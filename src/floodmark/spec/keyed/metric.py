"""Metrics of process functions: declared as class attributes, like states, and used in callbacks.

What is observed travels with the result of its micro-batch: a micro-batch that is computed again counts once, and a row that is set aside not at all.
Source: Flink ``Counter``, ``Gauge``, ``Histogram``, ``Meter``.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Protocol

from floodmark.core.errors import DefinitionError
from floodmark.spec.keyed.handle import Handle

Part = dict[str, Any]
"""What is observed of one metric, as JSON values: ``{"counter": 3}``, ``{"gauge": [time, value]}``, ``{"histogram": [bounds, counts, sum]}``."""


class Observed(Protocol):
    """Where the observations of a function go."""

    open: bool
    """Whether there is a current row or timer."""

    def add(self, name: str, value: float) -> None:
        """Add an observation at the event time of the row or timer."""


class Metric(Handle):
    """A number that a process function reports. Use ``Counter``, ``Gauge``, ``Histogram`` or ``Meter``.

    Args:
        about: one sentence for people.
    """

    noun = "metric"
    use = ".add(1), or what its kind of metric has"
    kind: ClassVar[str]

    def __init__(self, about: str = "") -> None:
        self.about = about

    def part(self, observations: Sequence[tuple[int, float]]) -> Part:
        """(event time, value) of observations -> what is observed of them together."""
        raise NotImplementedError

    def _observe(self, value: float) -> None:
        observed: Observed = self._opened()
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            msg = f"metric '{self.name}' takes a finite number, not {value!r}"
            raise ValueError(msg)
        observed.add(self.name, value)


class Counter(Metric):
    """A count that only grows.

    Example:
        >>> class Rises(ProcessFunction):
        ...     rises = Counter("rises of more than 20 degrees")
        ...     def on_element(self, row, ctx):
        ...         if row["rise"] > 20: self.rises.add()
    """

    kind = "counter"

    def add(self, count: float = 1) -> None:
        """Add a count, which is not negative."""
        if isinstance(count, (int, float)) and count < 0:
            msg = f"{self.kind} '{self.name}' only grows; it takes no {count!r}"
            raise ValueError(msg)
        self._observe(count)

    def part(self, observations: Sequence[tuple[int, float]]) -> Part:
        """As ``Metric``."""
        return {self.kind: _sum(value for _, value in observations)}


class Meter(Counter):
    """A count of events, shown as a rate. See ``Counter``."""

    kind = "meter"

    def mark(self, count: float = 1) -> None:
        """Count events."""
        self.add(count)


class Gauge(Metric):
    """A value of now: the one set at the latest event time; of several at that time, the greatest. So the value does not depend on how keys are divided."""

    kind = "gauge"

    def set(self, value: float) -> None:
        """Set the value as of the event time of the row or timer."""
        self._observe(value)

    def part(self, observations: Sequence[tuple[int, float]]) -> Part:
        """As ``Metric``."""
        return {self.kind: list(max(observations))}


class Histogram(Metric):
    """How values are distributed: the number of values up to each bound, and their sum.

    Args:
        bounds: upper bounds, ascending; values above the last one are counted, too.
        about: one sentence for people.
    """

    kind = "histogram"

    def __init__(self, bounds: Sequence[float] = (0.001, 0.01, 0.1, 1, 10, 100, 1000), about: str = "") -> None:
        super().__init__(about)
        self.bounds = tuple(bounds)
        numbers = all(isinstance(b, (int, float)) and not isinstance(b, bool) and math.isfinite(b) for b in self.bounds)
        if not self.bounds or not numbers or any(one >= other for one, other in pairwise(self.bounds)):
            fix = "Histogram(bounds=(1, 10, 100)) counts values up to 1, up to 10, up to 100, and above."
            raise DefinitionError("Histogram", "ascending bounds", repr(bounds), fix, code="DEFINITION-120")

    def observe(self, value: float) -> None:
        """Count a value."""
        self._observe(value)

    def part(self, observations: Sequence[tuple[int, float]]) -> Part:
        """As ``Metric``."""
        counts = [0] * (len(self.bounds) + 1)
        for _, value in observations:
            counts[bisect_left(self.bounds, value)] += 1
        return {self.kind: [list(self.bounds), counts, _sum(value for _, value in observations)]}


def merge(parts: Iterable[Mapping[str, Part]]) -> dict[str, Part]:
    """Metric -> what is observed of it in all parts, in whatever order they come.

    If a version of the function has changed the kind or the bounds of a metric, what the newest part says holds.
    """
    together: dict[str, list[Part]] = {}
    for part in parts:
        for name, observed in part.items():
            known = together.setdefault(name, [])
            if known and _shape(known[-1]) != _shape(observed):
                known.clear()
            known.append(observed)
    return {name: _merged(observed) for name, observed in together.items()}


def _shape(part: Part) -> Any:
    ((kind, value),) = part.items()
    return kind, list(value[0]) if kind == "histogram" else None


def _merged(parts: Sequence[Part]) -> Part:
    ((kind, _),) = parts[0].items()
    values = [part[kind] for part in parts]
    match kind:
        case "gauge":
            return {kind: list(max(map(tuple, values)))}
        case "histogram":
            counts = [sum(column) for column in zip(*(one[1] for one in values), strict=True)]
            return {kind: [list(values[0][0]), counts, _sum(one[2] for one in values)]}
        case _:
            return {kind: _sum(values)}


def _sum(values: Iterable[float]) -> float:
    """The sum: exact for integers, else the number nearest to it, in whatever order they come."""
    numbers = list(values)
    return sum(numbers) if all(isinstance(one, int) for one in numbers) else math.fsum(numbers)
