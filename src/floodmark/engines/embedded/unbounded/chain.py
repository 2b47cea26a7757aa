"""The stages of an operator one after the other inside a micro-batch: the rows of a stage are input of the stages behind it.

All stages have the progress of the stream. A stage has emitted every result up to there before the next one is computed, so that each
stage sees what it would see as a stream of its own that reads the commits of the stage before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.state.region import Region
from floodmark.engines.embedded.state.store import State
from floodmark.engines.embedded.unbounded.compute import Compute, Evaluated
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.keyed.metric import merge


@dataclass(slots=True)
class Chain:
    """Computes the micro-batches of one operator.

    Args:
        operator: of the stream.
        sail: computes stateless steps.
        state: of the stream; changed here, but not committed.
    """

    operator: Operator
    sail: Sail
    state: State
    _links: tuple[Compute, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._links = tuple(
            Compute(link, self.sail, Region(self.state, number)) for number, link in enumerate(self.operator.links)
        )

    def batch(self, number: int, inputs: Mapping[str, pa.Table], before: int, progress: int, clock: int) -> Evaluated:
        """Compute one micro-batch; arguments as of ``Compute.batch``."""
        rows = dict(inputs)
        evaluated = []
        for compute in self._links:
            link = compute.operator
            read = {given.name: rows[given.name] for given in link.inputs}
            own = compute.batch(number, read, before, progress, clock)
            rows |= {output.name: own.outputs[output.table] for output in link.outputs if output.side is None}
            evaluated.append(own)
        return evaluated[0] if len(evaluated) == 1 else self._whole(evaluated, inputs)

    def discard(self) -> None:
        """Discard the changes of a micro-batch that failed, so that it can be computed again."""
        self.state.discard()
        for compute in self._links:
            compute.discard()

    def _whole(self, evaluated: Sequence[Evaluated], inputs: Mapping[str, pa.Table]) -> Evaluated:
        """The rows of all outputs of the operator, and the counts of all stages."""
        tables = [output.table for output in self.operator.outputs]
        return Evaluated(
            {
                name: pa.concat_tables([one.outputs[name] for one in evaluated if name in one.outputs])
                for name in tables
            },
            late=sum(one.late for one in evaluated),
            dropped=sum(one.dropped for one in evaluated),
            retractions=evaluated[len(self.operator.stages) - 1].retractions,
            unmet=evaluated[-1].unmet,
            rows_in=sum(table.num_rows for table in inputs.values()),
            metrics=merge([one.metrics for one in evaluated]),
            hottest=evaluated[0].hottest,
        )

    def behind(self, rows: pa.Table, outputs: Sequence[Output]) -> dict[str, pa.Table]:
        """As of ``Compute.behind``, for an operator of one stage."""
        (only,) = self._links
        return only.behind(rows, outputs)
