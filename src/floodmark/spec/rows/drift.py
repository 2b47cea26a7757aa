"""Drift: an expectation that a number of an asset partition is near those of the partitions before it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from floodmark.core.errors import DefinitionError
from floodmark.core.types import parse
from floodmark.spec.rows.expectation import Expectation
from floodmark.spec.values.schema import Schema

COLUMN, ROWS = "column_drift", "table_row_count_drift"
"""Kinds of expectations, beside those of Great Expectations."""
KINDS = frozenset({COLUMN, ROWS})
Of = Literal["mean", "stddev", "min", "max", "nulls"]
_LEAST, _MOST = 3, 366
"""Of partitions before: fewer are not judged by; more are not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The arguments of an expectation of drift.

    Args:
        column: of the number; None for the number of rows.
        of: which number of the column; ``nulls`` is the share of rows without a value.
        last: number of partitions before that it is compared with, 3 to 366; those without rows are left out.
        deviations: how many standard deviations of theirs the number may be away from their mean.
        tolerance: which share of their mean it may be away in any case.
    """

    column: str | None
    of: Of
    last: int
    deviations: float
    tolerance: float

    @staticmethod
    def of_expectation(expectation: Expectation, where: str) -> Drift:
        """The arguments of an expectation.

        Raises:
            DefinitionError: DEFINITION-300, arguments that it does not take.
        """
        values: dict[str, Any] = {"of": "mean", "last": 7, "deviations": 3.0, "tolerance": 0.01} | expectation.values
        known = (
            {"of", "last", "deviations", "tolerance", "column"}
            if expectation.kind == COLUMN
            else {"last", "deviations", "tolerance", "of"}
        )
        limits = [values["deviations"], values["tolerance"]]
        fits = (
            set(values) <= known
            and (expectation.kind == ROWS or isinstance(values.get("column"), str))
            and values["of"] in get_args(Of)
            and isinstance(values["last"], int)
            and _LEAST <= values["last"] <= _MOST
            and all(isinstance(limit, int | float) and math.isfinite(limit) and limit >= 0 for limit in limits)
        )
        if not fits:
            fix = f'For example Expectation("{COLUMN}", column="delay", of="mean", last=7, deviations=3, tolerance=0.05), where of is one of {", ".join(get_args(Of))}.'
            expected = f"a column, last={_LEAST} to {_MOST}, and limits of 0 or more"
            raise DefinitionError(where, expected, expectation.describe(), fix, code="DEFINITION-300")
        return Drift(column=values.pop("column", None), **values)

    @property
    def sql(self) -> str:
        """The number as an aggregate of Spark SQL."""
        if self.column is None:
            return "CAST(count(1) AS double)"
        name = "`" + self.column.replace("`", "``") + "`"
        value = f"CAST({name} AS double)"
        texts: Mapping[Of, str] = {
            "mean": f"avg({value})",
            "stddev": f"stddev_samp({value})",
            "min": f"min({value})",
            "max": f"max({value})",
            "nulls": f"avg(CASE WHEN {name} IS NULL THEN 1.0D ELSE 0.0D END)",
        }
        return texts[self.of]

    def verdict(self, number: float | None, before: Sequence[float]) -> tuple[bool, dict[str, Any]]:
        """(the number of a partition, those of the partitions before) -> (whether it is near them, the numbers of the result).

        With fewer than three partitions before, and for a partition without the number, nothing is judged.
        """
        if len(before) < _LEAST or number is None or math.isnan(number):
            return True, {"partitions before": len(before), "judged": False}
        mean, deviation = statistics.fmean(before), statistics.pstdev(before)
        limit = max(self.deviations * deviation, self.tolerance * abs(mean))
        numbers = {"observed_value": number, "mean before": mean, "deviation before": deviation, "limit": limit}
        return abs(number - mean) <= limit, numbers | {"partitions before": len(before), "judged": True}


def check_drift(expectation: Expectation, schema: Schema, where: str, *, divided: bool) -> None:
    """Refuse an expectation of drift that cannot be judged.

    Args:
        expectation: of any kind; others pass.
        schema: of the rows.
        where: the asset, for errors.
        divided: True for an asset with partitions.

    Raises:
        DefinitionError: DEFINITION-300, other arguments, a column without numbers, or an asset without partitions.
    """
    if expectation.kind not in KINDS:
        return
    drift = Drift.of_expectation(expectation, where)
    if not divided:
        fix = "Give it some: operator_asset(..., partitions=Daily(...))."
        expected = "an asset with partitions, whose drift can be judged"
        raise DefinitionError(where, expected, "one without", fix, code="DEFINITION-300")
    if drift.column is not None and drift.of != "nulls" and not parse(schema[drift.column].type).is_numeric:
        fix = 'Write of="nulls", or name a column of numbers.'
        got = f"'{drift.column}' of {schema[drift.column].type}"
        raise DefinitionError(where, f"a column of numbers, for of={drift.of!r}", got, fix, code="DEFINITION-300")
