"""floodmark: one operator definition, bounded or unbounded, over Delta tables, with the same answer."""

from floodmark.spec.aggregates import (
    Aggregate,
    approx_count_distinct,
    count,
    count_distinct,
    max,
    mean,
    min,
    stddev,
    sum,
)
from floodmark.spec.asset import operator_asset, source_asset
from floodmark.spec.contract import Contract, EventTime, LocalTime
from floodmark.spec.expectation import Expectation
from floodmark.spec.operator import Operator, operator
from floodmark.spec.partitions import Daily, Hourly
from floodmark.spec.source import (
    Ascending,
    BoundedOutOfOrderness,
    DeltaTable,
    Files,
    FromColumn,
    Learned,
    Punctuated,
    Rows,
    Source,
)
from floodmark.spec.stream import Outputs, Stream
from floodmark.spec.windows import Calendar, Global, Sliding, Tumbling
from floodmark.spec.workspace import Settings, Workspace

__all__ = [
    "Aggregate",
    "Ascending",
    "BoundedOutOfOrderness",
    "Calendar",
    "Contract",
    "Daily",
    "DeltaTable",
    "EventTime",
    "Expectation",
    "Files",
    "FromColumn",
    "Global",
    "Hourly",
    "Learned",
    "LocalTime",
    "Operator",
    "Outputs",
    "Punctuated",
    "Rows",
    "Settings",
    "Sliding",
    "Source",
    "Stream",
    "Tumbling",
    "Workspace",
    "approx_count_distinct",
    "count",
    "count_distinct",
    "max",
    "mean",
    "min",
    "operator",
    "operator_asset",
    "source_asset",
    "stddev",
    "sum",
]
