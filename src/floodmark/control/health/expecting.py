"""Expecting: whether an asset partition meets an expectation is told by the alerts of its stream, once per change."""

from __future__ import annotations

from floodmark.control.state.messages import Messages
from floodmark.control.state.records import StreamId
from floodmark.control.state.store import Store
from floodmark.core.fingerprint import digest
from floodmark.core.time import Interval
from floodmark.engines.outcome import described
from floodmark.observe.checking import Checked, partition_name
from floodmark.spec.assets.alert import Change
from floodmark.spec.rows.criterion import EXAMPLES, Judged


def tell(store: Store, stream: StreamId, checked: Checked, judged: Judged, key: str | None, interval: Interval) -> bool:
    """Tell the alerts of a supervised stream whether checked rows meet an expectation, if that has changed. Returns whether it has.

    Nobody is told of an operator that was never started as a stream, or whose workspace declares no alerts.

    Args:
        store: the control store.
        stream: of the operator or source.
        checked: the rows with their expectations.
        judged: result of one of these.
        key: name of their asset partition; None for several together.
        interval: their event time.
    """
    expectation, passed, numbers = judged
    asset = checked.stream if checked.table is None else checked.table.rsplit("/", 1)[-1]
    partition = partition_name(key, interval)
    deployment = store.deployment(stream)
    if deployment is None or deployment.watch is None or not deployment.watch.alerts:
        return False
    again = f"floodmark check {stream.operator}{'' if key is None else f' --partition {key}'}"
    now, reason = store.now(), f"partition {partition} of '{asset}': check '{expectation.name}' "
    change = Change(
        key=digest([stream.operator, stream.lake, asset, expectation.name, partition, str(now)])[:16],
        stream=stream.operator,
        lake=stream.lake,
        environment=deployment.environment,
        level="ok" if passed else "error" if expectation.blocking else "warning",
        condition="met" if passed else "unmet",
        reason=reason + ("is passed" if passed else f"failed: {described(numbers)}"),
        mend="" if passed else f"mend the rows and check them again: {again}, or job checks_{stream.operator}",
        level_before="ok",
        before="met",
        at=now,
        asset=asset,
        partition=partition,
        expectation=expectation.name,
        sample="" if passed else str(numbers.get(EXAMPLES, "")),
    )
    return Messages(store).judged(stream, change, interval, range(deployment.watch.alerts))
