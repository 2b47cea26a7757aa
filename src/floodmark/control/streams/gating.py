"""Gates of an operator's outputs: which are closed, and their release by hand."""

from __future__ import annotations

import getpass
from collections.abc import Iterator

from floodmark.control.state.store import Store
from floodmark.core.errors import LifecycleError
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import gates, verdicts
from floodmark.lake.results.gates import Gate
from floodmark.spec.assets.asset import OperatorAsset
from floodmark.spec.graph.operator import Audit
from floodmark.spec.windowing.partitions import named


def closed(asset: OperatorAsset, lake: Lake) -> Iterator[tuple[str, Gate]]:
    """(path of the table, gate) of each closed gate of an operator's outputs."""
    for path in (lake.output(output.table) for output in asset.operator.outputs):
        yield from ((path, gate) for gate in gates.closed(path))


def release(asset: OperatorAsset, lake: Lake, partition: str, why: str, store: Store | None = None) -> list[Gate]:
    """Release the closed gates of an asset partition by hand, and what waits there for a verdict, of all outputs and checks. Returns them.

    Args:
        asset: the operator whose outputs have the gates.
        lake: the lake of its tables.
        partition: its name, or ``first...last``; or the name of the gate, such as ``all``.
        why: the reason, which is kept.
        store: the control store, whose journal notes it; None for none.

    Raises:
        LifecycleError: LIFECYCLE-198 no reason, 199 no gate of the partition is closed; 189 as ``named``.
    """
    where = f"gate of operator '{asset.operator.name}'"
    if not why.strip():
        fix = "Say why its readers may take it in as it is: --reason 'known outage, rows are complete'."
        raise LifecycleError(where, "a reason", "none", fix, code="LIFECYCLE-198")
    known = list(closed(asset, lake))
    chosen = [(path, gate) for path, gate in known if gate.partition == partition]
    if asset.partitions is not None and partition != "all":
        interval = named(asset.partitions, partition, "--partition")
        chosen = chosen or [(path, gate) for path, gate in known if interval.holds(gate.interval)]
        chosen += _released(asset, lake, partition, interval, {(path, gate.check) for path, gate in chosen})
    if not chosen:
        names = ", ".join(dict.fromkeys(gate.partition for _, gate in known))
        got = f"{partition}; closed are {names}" if names else f"{partition}; none is closed"
        fix = f"See which are closed: floodmark gate list {asset.operator.name}"
        raise LifecycleError(where, "a partition whose gate is closed", got, fix, code="LIFECYCLE-199")
    who = getpass.getuser()
    for path, gate in chosen:
        if not gate.interval.everything:
            verdicts.record(path, gate.check, gate.interval)
        gates.release(path, [gate], who=who, why=why)
        if store is not None:
            about = {"table": gate.table, "partition": gate.partition, "check": gate.check, "why": why}
            store.note(who, "release gate", asset.operator.name, **about)
    return [gate for _, gate in chosen]


def strict(asset: OperatorAsset, lake: Lake) -> dict[str, tuple[str, Audit]]:
    """Path of an output's table -> (its name, what its rows have to pass before they are read), of those with strict expectations."""
    if asset.partitions is None:
        return {}
    checks = {name: tuple(one.name for one in some if one.strict) for name, some in asset.expectations.items()}
    tables = {name: asset.operator.output(name).table for name, some in checks.items() if some}
    return {lake.output(table): (table, Audit(checks[name], asset.partitions)) for name, table in tables.items()}


def unjudged(asset: OperatorAsset, lake: Lake) -> Iterator[tuple[str, str, str]]:
    """(table, partition, check) of what waits for a verdict."""
    for path, (table, audit) in strict(asset, lake).items():
        yield from ((table, partition, check) for partition, _, check in verdicts.waiting(path, audit))


def _released(
    asset: OperatorAsset, lake: Lake, partition: str, interval: Interval, closed_gates: set[tuple[str, str]]
) -> Iterator[tuple[str, Gate]]:
    """What waits for a verdict over an interval, as gates that are to be released."""
    for path, (table, audit) in strict(asset, lake).items():
        for check in verdicts.unjudged(path, audit.checks, interval):
            if (path, check) not in closed_gates:
                yield path, gates.gate(table, partition, interval, check, "not judged")
