"""Two sides that have different keys each: a split, of which one side runs another version."""

from __future__ import annotations

from collections.abc import Sequence

from floodmark.core.errors import LifecycleError
from floodmark.core.sql import quoted
from floodmark.lifecycle.comparison import SampleRatio, SplitDifference
from floodmark.observe.comparison.compare import How, engine
from floodmark.observe.comparison.evidence import Moments, sample_ratio, two_samples
from floodmark.observe.comparison.profiles import as_number
from floodmark.observe.comparison.sides import Side


def split(
    left: Side,
    right: Side,
    how: How,
    *,
    key: Sequence[str],
    column: str,
    share: float,
    until: int,
    looks: int = 1,
) -> tuple[SampleRatio, SplitDifference]:
    """Whether a split is as it was meant, and how the means of a column differ between its keys. One pass over the rows of both sides.

    Args:
        left: the one.
        right: the other, with other keys.
        how: memory, and where to spill.
        key: columns that say to which side a row goes.
        column: of numbers; a key counts with the mean of its rows.
        share: of the keys that is meant for the right side, between 0 and 1.
        until: rows before this event time, ms.
        looks: that are planned at the difference.

    Raises:
        LifecycleError: LIFECYCLE-081, a column is not there; LIFECYCLE-089, it has no numbers.
        SetupError: SETUP-052, no room on the disk for what does not fit into memory.
    """
    found = []
    with engine(how, f"split of '{left.name}' and '{right.name}'") as (connection, _):
        for side in (left, right):
            side.check_columns([*key, column], "of a split")
            number = as_number(quoted(column), side.types[column])
            if number is None or not side.types[column].is_numeric:
                fix = "Name a column of numbers."
                where, got = f"column '{column}' of '{side.name}'", str(side.types[column])
                raise LifecycleError(where, "numbers, whose means can be compared", got, fix, code="LIFECYCLE-089")
            rows, _ = side.live(connection, [*key, column], until)
            means = f"SELECT avg({number}) AS mean FROM ({rows}) GROUP BY {', '.join(map(quoted, key))}"
            query = f"SELECT count(*), count(mean), coalesce(avg(mean), 0), coalesce(var_samp(mean), 0) FROM ({means})"
            found.append(connection.sql(query).fetchall()[0])
    ratio = sample_ratio(found[0][0], found[1][0], share)
    return ratio, two_samples(Moments(*found[0][1:]), Moments(*found[1][1:]), looks)
