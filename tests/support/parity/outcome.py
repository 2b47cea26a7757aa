"""What came of an expression, and when two values are one."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

CLOSE = 1e-12
_FLOAT = re.compile(r"f(NaN|nan|-?(?:Infinity|inf|[\d.]+(?:[eE][+-]?\d+)?))")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one expression.

    Args:
        verdict: ``same``, ``close`` (floats alike to twelve digits), ``differs``.
        spark: its value, where the two differ; else one that is not null, if there is one.
        sail: as ``spark``.
        kind: Spark's type.
        sql: what Sail was asked.
        row: of the table, that has these values; -1 if the expression has none.
    """

    verdict: str
    spark: str
    sail: str
    kind: str = ""
    sql: str = ""
    row: int = -1


def alike(one: str, other: str, *, single: bool = False) -> str:
    """How near two values are, whose text is not the same.

    Args:
        one: of Spark.
        other: of Sail.
        single: they are floats of 32 bits, of which Java and Python write other digits.
    """
    if _FLOAT.sub("f", one) != _FLOAT.sub("f", other):
        return "differs"
    verdict = "same"
    for left, right in zip(_FLOAT.findall(one), _FLOAT.findall(other), strict=True):
        a, b = (float(np.float32(text)) if single else float(text) for text in (left, right))
        if (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b)):
            continue
        if a == 0 or b == 0 or math.isnan(a) or math.isnan(b) or not math.isclose(a, b, rel_tol=CLOSE):
            return "differs"
        verdict = "close"
    return verdict
