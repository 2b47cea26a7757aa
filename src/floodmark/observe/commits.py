"""What the commits of a stream's tables say was measured: for commits whose driver died before it reported them."""

from __future__ import annotations

from itertools import takewhile

from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table import history
from floodmark.lake.table.commits import Landing, MicroBatch
from floodmark.observe.measure import Measure
from floodmark.spec.graph.operator import Operator

LOOK_BACK = 1_000
"""Most commits of a table that are read, newest first."""


def measures(operator: Operator, timeline: Timeline, history_id: str, since: int) -> list[Measure]:
    """The micro-batches of a timeline after a number, oldest first, without durations.

    Args:
        operator: of the stream.
        timeline: of the micro-batches.
        history_id: as ``Measure.history``.
        since: number of the last micro-batch that is left out.
    """
    main, *sides = operator.outputs
    path = timeline.lake.output(main.table)
    batches = {record.batch: (commit.at, record) for commit, record in _after(path, timeline, since)}
    rows = {number: {main.table: record.rows} for number, (_, record) in batches.items()}
    unmet = {number: {main.table: record.unmet} for number, (_, record) in batches.items() if record.unmet}
    aside = dict.fromkeys(batches, 0)
    for output in sides if batches else ():
        for _, record in _after(timeline.lake.output(output.table), timeline, since):
            if record.batch in batches:
                rows[record.batch][output.table] = record.rows
                aside[record.batch] += record.rows if output.side == "quarantine" else 0
                if record.unmet:
                    unmet.setdefault(record.batch, {})[output.table] = record.unmet
    return [
        Measure(
            history=history_id,
            number=number,
            at=at / 1000,
            rows_in=record.rows_in,
            rows=rows[number],
            late=record.late,
            dropped=record.dropped,
            quarantined=aside[number],
            progress=record.progress,
            unmet=unmet.get(number, {}),
            metrics=record.metrics,
        )
        for number, (at, record) in sorted(batches.items())
    ]


def _after(path: str, timeline: Timeline, since: int) -> list[tuple[history.Commit, MicroBatch]]:
    commits = history.standing_of(path, MicroBatch, LOOK_BACK)
    newer = takewhile(lambda one: one[1].timeline == timeline.number and one[1].batch > since, commits)
    return [(commit, record) for commit, record in newer if not (record.settled or record.restated)]


def landings(source: str, path: str, history_id: str, since: int) -> list[Measure]:
    """The landing commits of a log after a number, oldest first, without durations.

    Args:
        source: name of the source.
        path: path of its log.
        history_id: as ``Measure.history``.
        since: ordinal of the last landing commit that is left out.
    """
    commits = takewhile(lambda one: one[1].ordinal > since, history.standing_of(path, Landing, LOOK_BACK))
    return [
        Measure(
            history=history_id,
            number=record.ordinal,
            at=commit.at / 1000,
            rows_in=record.rows + record.quarantined,
            rows={source: record.rows},
            quarantined=record.quarantined,
            progress=record.progress,
        )
        for commit, record in reversed(list(commits))
    ]
