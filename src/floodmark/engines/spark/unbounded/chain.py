"""The stages of an operator in one streaming query: the results of a stage are rows of the stages behind it, in the same micro-batch.

Spark's watermark, which is the progress of the stream, is the same for all stages. A stage has emitted every result up to there before a
stage behind it fires, so that each stage sees what it would see as a stream of its own that reads the commits of the stage before.

Spark's query is a tree. A stage whose results are read twice is in it twice, each with its own state, and computes the same twice.
What a stage tells the sink (counts, late rows, its results where they are an output) passes the stages behind its first copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import DataFrame

from floodmark.core.time import Interval
from floodmark.engines.frames.compile import compiled, stage_rows
from floodmark.engines.frames.packing import HOSTED, PACKED, UNHOSTED, packing
from floodmark.engines.spark.delta.ticks import Ticks
from floodmark.engines.spark.state.handing import handed_ddl, handing
from floodmark.engines.spark.state.processor import Processor
from floodmark.semantics.kernels.stage import AnyStage, stage_of
from floodmark.spec.graph import stages
from floodmark.spec.graph.operator import Operator
from floodmark.spec.graph.steps import Stateful, walk


def stages_of(operator: Operator) -> tuple[AnyStage, ...]:
    """The stages of an operator, in their order."""
    return tuple(stage for link in operator.links if (stage := stage_of(link)) is not None)


def nearest(operator: Operator) -> tuple[Stateful, ...]:
    """The stages of an operator from whose results its outputs are computed, each once."""
    return tuple(
        dict.fromkeys(s for _, result in operator.results for s in stages.nearest(result) if s in operator.stages)
    )


@dataclass(slots=True)
class Chain(Mapping[str, DataFrame]):
    """The streaming rows that the steps of an operator read, by name: those of its inputs, and the results of its stages.

    Args:
        operator: with a stage at least.
        inputs: input name -> its rows.
        ticks: recorded clock, for a stage that waits for processing time.
    """

    operator: Operator
    inputs: Mapping[str, DataFrame]
    ticks: Ticks | None
    _stages: tuple[AnyStage, ...] = field(init=False)
    _names: tuple[str, ...] = field(init=False)
    _copies: int = field(default=0, init=False)
    _read: set[int] = field(default_factory=set, init=False)
    """Numbers of the stages of which a copy is in the query."""

    def __post_init__(self) -> None:
        self._stages = stages_of(self.operator)
        self._names = tuple(stages.name_of(step) for step in self.operator.stages)

    def emitted(self) -> DataFrame:
        """The emissions of all stages, as ``EMITTED``: of those that no other stage reads, with what is carried past them."""
        steps = self.operator.stages
        read = {below for step in steps for parent in step.parents for below in walk(parent)}
        return reduce(DataFrame.union, [self._emitted(n) for n, step in enumerate(steps) if step not in read])

    def __getitem__(self, name: str) -> DataFrame:
        """The rows of an input, or a copy of a stage with all before it."""
        if name in self.inputs:
            return self.inputs[name]
        number = self._names.index(name)
        results = nearest(self.operator)
        carries = {n for n, step in enumerate(self.operator.stages) if step in results or step.sides}
        first = number not in self._read
        self._read.add(number)
        stage, emitted = self._stages[number], self._emitted(number)
        return emitted.mapInArrow(handing(stage, number, carries if first else None), handed_ddl(stage.step.schema))

    def __iter__(self) -> Iterator[str]:
        return iter((*self.inputs, *self._names))

    def __len__(self) -> int:
        return len(self.inputs) + len(self._names)

    def _emitted(self, number: int) -> DataFrame:
        stage = self._stages[number]
        rows = stage_rows(stage, compiled(stage.step.parent, self))
        self._copies += 1
        packs = packing(stage, Interval(), everyone=self.ticks is not None, copy=self._copies)
        packed = rows.mapInArrow(packs, PACKED)
        processor = Processor(stage, number, self.ticks.clock if self.ticks else None)
        hosted = packed.groupBy("group").transformWithStateInPandas(processor, HOSTED, "Append", "EventTime")
        return hosted.selectExpr(*UNHOSTED)
