"""Spark rounds a negated decimal to 34 digits: 123456789012345678901234567890123456.78 becomes -123456789012345678901234567890123500.00."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from floodmark.core.errors import CapabilityError
from floodmark.engines.local.expressions import Queries
from floodmark.engines.local.translation.expression import duckdb_sql
from floodmark.spec.expressions import expression
from floodmark.spec.schema import Column, Schema

SCHEMA = Schema((Column(name="x", type="decimal(38,2)"), Column(name="y", type="decimal(34,2)")))


@pytest.mark.parametrize("text", ["-x", "abs(x)", "negative(x)"])
def test_a_decimal_of_more_digits_than_spark_negates_is_refused(text):
    with pytest.raises(CapabilityError, match="CAPABILITY-030 .*decimal of more than 34 digits, which Spark rounds"):
        duckdb_sql(expression(text, SCHEMA, "test"), "test")


@pytest.mark.parametrize(("text", "value"), [("-y", "-" + "9" * 32 + ".99"), ("abs(-y)", "9" * 32 + ".99")])
def test_a_decimal_of_34_digits_is_negated_exactly(text, value):
    connection = Queries().connection
    connection.register("negated", pa.table({"y": pa.array([Decimal("9" * 32 + ".99")], pa.decimal128(34, 2))}))
    sql = duckdb_sql(expression(text, SCHEMA, "test"), "test")
    assert connection.sql(f"SELECT {sql} FROM negated").fetchall() == [(Decimal(value),)]
