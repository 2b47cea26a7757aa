"""The stages of steps that process row by row, for ``semantics.kernels.panes`` and ``semantics.kernels.process``, and their row columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.time import Interval
from floodmark.semantics.aggregates.accumulators import Value, normalised
from floodmark.semantics.encoding.columns import result_schema
from floodmark.semantics.kernels.columnar import by_group
from floodmark.semantics.kernels.failures import split
from floodmark.spec.expressions import check
from floodmark.spec.graph.steps import KeyedProcess, WindowAggregate, expressions
from floodmark.spec.values.schema import MARKER, TAG
from floodmark.spec.windowing.triggers import AfterCount, AfterWatermark, EndOfInput, Purging, Trigger, own_parts
from floodmark.spec.windowing.windows import Count, Global, WindowAssigner


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """A bounded run over a part of time.

    Args:
        interval: whose results are wanted.
        read: whose rows are there.
    """

    interval: Interval
    read: Interval


@dataclass(frozen=True, slots=True)
class ElementStage:
    """A stateful step for ``RecordWindowKernel``. Frozen and picklable.

    Row columns: ``k0...`` keys, ``t`` event time, ``w`` stamp, ``s`` sequence, ``kind``, ``v0...`` values, ``row`` the whole row where a
    function of the user sees it, ``side`` the whole row where it may be too late.
    """

    step: WindowAggregate
    by_time: bool
    """Whether rows are processed in order of effective time instead of arrival."""
    clip: Clip | None = None
    """The interval to compute; None for all of time."""
    revisable: bool = False
    """Whether rows may be retracted."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Internal names of the key columns."""
        return tuple(f"k{i}" for i in range(len(self.step.keys)))

    @property
    def values(self) -> tuple[Value, ...]:
        """The expressions that are computed for each row before the stage: of aggregates, a session's gap, an evictor's distance."""
        values_by_sql: dict[str, Value] = {}
        for text in expressions(self.step):
            kind = check(text, self.step.parent.schema, f"step '{self.step.uid}'")
            values_by_sql.setdefault(text, Value(text, kind))
        return tuple(values_by_sql.values())

    @property
    def whole_rows(self) -> bool:
        """Whether a function of the user needs whole rows."""
        step = self.step
        seen = step.function is not None and not step.aggregates
        return seen or isinstance(step.window, WindowAssigner) or bool(own_parts(self.trigger))

    @property
    def trigger(self) -> Trigger:
        """The step's trigger, or the default trigger of its window."""
        match self.step.window:
            case Count() as window:
                every = AfterCount(window.slide)
                return Purging(every) if window.slide == window.size else every
            case Global():
                return self.step.trigger or EndOfInput()
            case _:
                return self.step.trigger or AfterWatermark()

    @property
    def result_schema(self) -> pa.Schema:
        """The step's columns, then ``_event_time`` and ``_watermark`` in ms, ``_kind``, ``_order``."""
        return result_schema(self.step.schema)

    @property
    def several(self) -> bool:
        """Whether rows are from several inputs, which order rows of one time by input."""
        return False

    def pack(self, batches: Iterable[pa.RecordBatch]) -> dict[int, dict[str, pa.Table]]:
        """The unchanged rows per key group."""
        return by_group(arrived(batches, self.keys))


@dataclass(frozen=True, slots=True)
class ProcessStage:
    """A process function for ``ProcessKernel``. Frozen and picklable. Row columns as of ``ElementStage``; ``v0`` is the tag of its input."""

    step: KeyedProcess
    by_time: bool
    """Whether rows are processed in order of effective time instead of arrival."""
    clip: Clip | None = None
    """The interval whose rows are emitted; None for all of time. All rows are processed."""
    runner: list[Any] = field(default_factory=list, compare=False, repr=False)
    """The opened function: empty until a kernel opens it, in each process."""
    recorded: bool = False
    """Whether ``s`` is the same number for a row in every run: that of its landing."""
    revised: bool = False
    """Whether rows may be retracted."""
    whole_rows: ClassVar[bool] = True

    @property
    def keys(self) -> tuple[str, ...]:
        """Internal names of the key columns."""
        return tuple(f"k{i}" for i in range(len(self.step.keys)))

    @property
    def several(self) -> bool:
        """Whether rows are from several inputs, which order rows of one time by input."""
        return bool(self.step.ports)

    @property
    def values(self) -> tuple[Value, ...]:
        """The tag of a row's input, if there are several inputs."""
        return (Value(TAG, "int"),) if self.step.ports else ()

    @property
    def result_schema(self) -> pa.Schema:
        """The step's columns, then ``_event_time`` and ``_watermark`` in ms, ``_kind``, ``_order``."""
        return result_schema(self.step.schema)

    def pack(self, batches: Iterable[pa.RecordBatch]) -> dict[int, dict[str, pa.Table]]:
        """The unchanged rows per key group."""
        return by_group(arrived(batches, self.keys))

    def close(self) -> None:
        """Close the function, if it was opened."""
        while self.runner:
            self.runner.pop().close()


def arrived(batches: Iterable[pa.RecordBatch], keys: tuple[str, ...]) -> dict[str, pa.Table]:
    """The unchanged rows of all key groups, ``rows``, without markers, and the rows that failed before, ``failed``; with the column ``group``."""
    rows = [t for b in batches if (t := pa.Table.from_batches([b])).num_rows]
    if not rows:
        return {}
    table, failed = split(normalised(pa.concat_tables(rows), keys))
    tables = {"rows": table.filter(pc.not_equal(table["kind"], MARKER))}
    return tables | ({"failed": failed[0]} if failed else {})
