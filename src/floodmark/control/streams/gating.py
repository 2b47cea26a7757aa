"""Gates of an operator's outputs: which are closed, and their release by hand."""

from __future__ import annotations

import getpass
from collections.abc import Iterator

from floodmark.control.state.store import Store
from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import gates
from floodmark.lake.results.gates import Gate
from floodmark.spec.assets.asset import OperatorAsset
from floodmark.spec.windowing.partitions import named


def closed(asset: OperatorAsset, lake: Lake) -> Iterator[tuple[str, Gate]]:
    """(path of the table, gate) of each closed gate of an operator's outputs."""
    for path in (lake.output(output.table) for output in asset.operator.outputs):
        yield from ((path, gate) for gate in gates.closed(path))


def release(asset: OperatorAsset, lake: Lake, partition: str, why: str, store: Store | None = None) -> list[Gate]:
    """Release the closed gates of an asset partition by hand, of all outputs and checks. Returns them.

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
    if not chosen and asset.partitions is not None and partition != "all":
        interval = named(asset.partitions, partition, "--partition")
        chosen = [(path, gate) for path, gate in known if interval.holds(gate.interval)]
    if not chosen:
        names = ", ".join(dict.fromkeys(gate.partition for _, gate in known))
        got = f"{partition}; closed are {names}" if names else f"{partition}; none is closed"
        fix = f"See which are closed: floodmark gate list {asset.operator.name}"
        raise LifecycleError(where, "a partition whose gate is closed", got, fix, code="LIFECYCLE-199")
    who = getpass.getuser()
    for path, gate in chosen:
        gates.release(path, [gate], who=who, why=why)
        if store is not None:
            about = {"table": gate.table, "partition": gate.partition, "check": gate.check, "why": why}
            store.note(who, "release gate", asset.operator.name, **about)
    return [gate for _, gate in chosen]
