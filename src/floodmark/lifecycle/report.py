"""The report of an experiment as data: each arm's comparison with the first arm, its operations, and the guardrails of its promotion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from floodmark.lifecycle.comparison import Comparison
from floodmark.lifecycle.experiment import Arm, Experiment, Operations
from floodmark.lifecycle.guardrails import Guardrail


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report of an experiment.

    Args:
        experiment: the experiment.
        match: least share of the rows of each output that must be the same, 0 to 1.
        comparisons: arm -> output -> its comparison with the first arm, or why the two cannot be compared; without outputs that have no
            window closed in both arms.
        operations: of the arms, in their order.
        guardrails: of the promotion rule at the last look; empty without a rule.
    """

    experiment: Experiment
    match: float
    comparisons: Mapping[str, Mapping[str, Comparison | str]]
    operations: tuple[Operations, ...]
    guardrails: tuple[Guardrail, ...] = ()

    @property
    def others(self) -> tuple[Arm, ...]:
        """The arms that are compared with the first one."""
        return self.experiment.arms[1:]

    @property
    def same(self) -> bool:
        """Whether every arm passes."""
        return all(self.passes(arm) for arm in self.others)

    def passes(self, arm: Arm) -> bool:
        """Whether an arm matches the first arm: enough rows are the same in every output, and all columns of the first arm were compared."""
        outputs = self.comparisons[arm.name].values()
        return bool(outputs) and all(
            not isinstance(one, str) and one.counts.match >= self.match and not one.not_compared for one in outputs
        )

    def verdict(self, arm: Arm) -> str:
        """The verdict on an arm, in words."""
        outputs = self.comparisons[arm.name]
        refused = [table for table, one in outputs.items() if isinstance(one, str)]
        compared = [one for one in outputs.values() if not isinstance(one, str)]
        if refused:
            return f"{', '.join(refused)} cannot be compared"
        if not compared:
            return "nothing has closed in both arms yet"
        rows = sum(one.counts.rows for one in compared)
        within = sum(one.counts.within for one in compared)
        same = within + sum(one.counts.equal for one in compared)
        share = "all" if same == rows else f"{100 * same / rows:.6g}%"
        text = f"{share} of {rows:,} rows are the same" if rows else "no rows on either side"
        text += f", {within:,} of them within a tolerance" if within else ""
        columns = sorted({one.name for found in compared for one in found.schema})
        text += f"; other columns: {', '.join(columns)}" if columns else ""
        return f"{text}; the code is the same, so this is noise" if self.experiment.twin(arm) else text

    def noise(self, table: str) -> Comparison | None:
        """The comparison of the first arm with an arm of the same code: the floor of all other differences. None without such an arm."""
        for arm in self.others:
            comparison = self.comparisons[arm.name].get(table)
            if self.experiment.twin(arm) and isinstance(comparison, Comparison):
                return comparison
        return None

    def next_steps(self) -> Iterator[str]:
        """The commands that may follow."""
        name, whole = self.experiment.name, self.experiment.sample is None
        if self.experiment.over:
            yield f"floodmark experiment clean {name}"
            return
        for arm in self.others:
            if self.passes(arm) and not self.experiment.twin(arm):
                yield f"floodmark experiment promote {name} --arm {arm.name}" if whole else self.experiment.whole
        yield f"floodmark experiment stop {name}"

    def as_json(self) -> dict[str, Any]:
        """For a document."""
        comparisons = {
            arm: {table: {"refused": one} if isinstance(one, str) else asdict(one) for table, one in outputs.items()}
            for arm, outputs in self.comparisons.items()
        }
        return {
            "experiment": self.experiment.name,
            "same": self.same,
            "verdicts": {arm.name: self.verdict(arm) for arm in self.others},
            "noise": [arm.name for arm in self.others if self.experiment.twin(arm)],
            "found": comparisons,
            "guardrails": [asdict(one) for one in self.guardrails],
            "operations": [asdict(one) | {"rate": one.usage.rate, "cost": one.usage.cost} for one in self.operations],
        }


def operational(operations: Sequence[Operations]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The rows of the table of operations: name of a measurement -> its value per arm, in words. Without measurements that no arm has."""
    measured: list[tuple[str, list[str | None]]] = [
        ("version", [one.arm.version for one in operations]),
        ("process", [one.driver for one in operations]),
        ("behind its input", [_amount(one.lag, "s") for one in operations]),
        ("behind the foremost arm", [_amount(one.behind, "s") for one in operations]),
        ("rows read", [f"{one.usage.rows:,}" for one in operations]),
        ("rows per second of micro-batches", [_amount(one.usage.rate) for one in operations]),
        ("processor time", [_amount(one.usage.processor or None, "s", 1) for one in operations]),
        ("processor time per million rows", [_amount(one.usage.cost, "s", 1) for one in operations]),
        ("greatest memory", [_amount(one.usage.memory / 2**20 or None, "MiB") for one in operations]),
        ("state and positions", [None if one.state is None else f"{one.state:,} bytes" for one in operations]),
        ("late", [f"{one.usage.late:,}" for one in operations]),
        ("dropped as too late", [f"{one.usage.dropped:,}" for one in operations]),
        ("set aside", [f"{one.usage.set_aside:,}" for one in operations]),
    ]
    for what, values in measured:
        if any(value is not None for value in values):
            yield what, tuple("unknown" if value is None else value for value in values)


def _amount(value: float | None, unit: str = "", digits: int = 0) -> str | None:
    return None if value is None else f"{value:,.{digits}f} {unit}".strip()
