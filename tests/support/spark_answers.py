"""What Spark answers for the expressions of ``expressions.txt`` over rows of odd values; recorded in ``expressions.json``.

    python tests/support/spark_answers.py

records them anew. Tests compare the embedded engine with the record, and Spark with it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.values.schema import Column, Schema

HERE = Path(__file__).resolve().parent
EXPRESSIONS = tuple((HERE / "expressions.txt").read_text().splitlines())
RECORD = HERE / "expressions.json"
TYPES = {
    "i": "bigint",
    "j": "bigint",
    "n": "int",
    "f": "double",
    "g": "double",
    "h": "float",
    "s": "string",
    "k": "string",
    "b": "boolean",
    "d": "decimal(12,3)",
    "ts": "timestamp",
    "at": "timestamp",
    "dt": "date",
    "ai": "array<bigint>",
    "st": "array<string>",
    "bi": "binary",
}
SCHEMA = Schema(tuple(Column(name=name, type=kind) for name, kind in TYPES.items()))


def _row(*values: Any) -> dict[str, Any]:
    return dict(zip(TYPES, values, strict=True))


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


NOON = _at("2020-02-02 12:00:00")
NAN, INF = float("nan"), float("inf")
# fmt: off
ROWS = (
    _row(3, 2, 5, 2.5, 1.0, 0.1, "abc", "b", True, Decimal("1.500"), _at("2020-01-31 10:11:12.123456"), NOON, date(2020, 1, 31),
         [3, 1, 2], ["a", "b"], b"abc"),
    _row(-7, 3, -2, -2.5, NAN, -1.5, "é€😀b", "é", False, Decimal("-1.500"), _at("2019-12-29 23:59:59.999999"), NOON,
         date(2019, 12, 29), [1, 1, -2], ["b", "a", "b"], b"\xff"),
    _row(*[None] * len(TYPES)),
    _row(0, 0, 0, 0.0, -0.0, 0.0, "", "", True, Decimal("0.000"), _at("1970-01-01 00:00:00"), _at("1970-01-01 00:00:00"),
         date(1970, 1, 1), [], [], b""),
    _row(10, -1, 1, -0.0, 0.0, 3.0, "12", "1", False, Decimal("-0.005"), _at("2020-03-29 01:30:00"), NOON, date(2020, 2, 29),
         [5, 4], ["x", None], b"12"),
    _row((1 << 63) - 1, 1, (1 << 31) - 1, INF, 1.0, 1e30, "  Ab_C ,x", "b", True, Decimal("999999999.999"),
         _at("2020-11-01 06:30:00"), NOON, date(2021, 1, 3), [9], ["B", "a"], b"\x00\x01"),
    _row(-(1 << 63), -1, -(1 << 31), -INF, -INF, -INF, "abbc,b", "ab", False, Decimal("-999999999.999"),
         _at("1500-03-01 05:06:07"), NOON, date(1500, 3, 1), [None, 1], [None], b"a"),
    _row(1234567890123, 7, 100, NAN, NAN, NAN, "a%b_c", "%", None, Decimal("2.345"), _at("1969-12-31 23:59:59.500000"), NOON,
         date(1969, 12, 31), [1], ["a"], b"z"),
    _row(-1, 2, 2, 1e300, 0.1, 1e-7, "12.7", "2", True, Decimal("0.005"), _at("2024-02-29 12:30:45"), NOON, date(2024, 2, 29),
         [-9223372036854775808], ["aa"], b"q"),
    _row(65, 10, 3, 1e-5, 12345678.9, 16777216.0, "2020-01-31", "true", True, Decimal("25.000"), _at("2026-12-31 23:00:00"),
         NOON, date(2026, 12, 31), [1, 2, 3, 4], ["c", "b", "a"], b"w"),
)
# fmt: on


def table() -> pa.Table:
    """The rows."""
    return pa.Table.from_pylist(list(ROWS), arrow_schema(SCHEMA))


def written(value: Any) -> Any:
    """A value of Arrow, or of Python, as JSON that tells -0.0 from 0.0 and knows NaN."""
    match value:
        case None:
            return None
        case list() | tuple():
            return [written(item) for item in value]
        case dict():
            return {name: written(item) for name, item in value.items()}
        case datetime():
            return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
        case bytes():
            return value.hex()
        case bool():
            return str(value).lower()
        case _:
            return str(value)


def answers(spark: Any, texts: Sequence[str]) -> dict[str, Any]:
    """Expression -> ``{"refused": error}``, or its type and, row by row, a value or ``{"error": class}``."""
    rows = spark.createDataFrame(table())
    return {text: _answer(rows, text) for text in texts}


def _answer(rows: Any, text: str) -> dict[str, Any]:
    try:
        frame = rows.selectExpr(f"({text}) AS x")
    except Exception as error:  # noqa: BLE001 - whatever Spark raises is the answer
        return {"refused": _condition(error)}
    kind = frame.schema["x"].dataType.simpleString()
    if "struct" in kind or "map" in kind or "interval" in kind or "void" in kind:
        return {"type": kind}
    try:
        return {"type": kind, "values": [written(v) for v in frame.toArrow()["x"].to_pylist()]}
    except Exception:  # noqa: BLE001
        values = []
        for number in range(len(ROWS)):
            one = rows.sparkSession.createDataFrame(table().slice(number, 1))
            try:
                values.append(written(one.selectExpr(f"({text}) AS x").toArrow()["x"][0].as_py()))
            except Exception as error:  # noqa: BLE001
                values.append({"error": _condition(error)})
        return {"type": kind, "values": values}


def _condition(error: Exception) -> str:
    condition = getattr(error, "getCondition", lambda: None)()
    return str(condition or type(error).__name__)


if __name__ == "__main__":
    from floodmark.engines.spark.session.builder import spark_session

    found = answers(spark_session(), EXPRESSIONS)
    lines = [f" {json.dumps(text)}: {json.dumps(answer, ensure_ascii=False)}" for text, answer in found.items()]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    sys.stdout.write(f"{len(found)} expressions\n")
