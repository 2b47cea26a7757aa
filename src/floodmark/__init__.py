"""floodmark: one operator definition, bounded or unbounded, over Delta tables, with the same answer."""

from floodmark.spec.assets.alert import Alert, Change, Email, Webhook
from floodmark.spec.assets.asset import Savepoints, Upgrades, operator_asset, source_asset
from floodmark.spec.assets.checkpoints import Checkpoints
from floodmark.spec.assets.delivery import Delivery
from floodmark.spec.assets.installed import connector
from floodmark.spec.assets.restart import Restart
from floodmark.spec.assets.rollout import PromoteWhen, Rollout
from floodmark.spec.assets.store import Store
from floodmark.spec.assets.to_files import ToFiles
from floodmark.spec.assets.to_kafka import ToKafka
from floodmark.spec.assets.to_lake import ToLake
from floodmark.spec.assets.to_redis import ToRedis
from floodmark.spec.assets.to_search import ToSearch
from floodmark.spec.assets.to_sql import ToSql
from floodmark.spec.assets.to_webhook import ToWebhook
from floodmark.spec.graph.operator import Operator, operator
from floodmark.spec.graph.stream import Outputs, Stream
from floodmark.spec.keyed.applied import function
from floodmark.spec.keyed.fitted import ModelVersion
from floodmark.spec.keyed.metric import Counter, Gauge, Histogram, Meter
from floodmark.spec.keyed.model import ModelState
from floodmark.spec.keyed.process import BroadcastProcessFunction, Context, CoProcessFunction, ProcessFunction
from floodmark.spec.keyed.state import (
    AggregatingState,
    BroadcastState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from floodmark.spec.keyed.timer import Timer
from floodmark.spec.patterns.pattern import Pattern, begin
from floodmark.spec.patterns.skip import no_skip, skip_past_last_event, skip_to_first, skip_to_last, skip_to_next
from floodmark.spec.rows.connector import Connector, DeltaTable, Files, Rows
from floodmark.spec.rows.contract import Contract, EventTime, LocalTime
from floodmark.spec.rows.debezium import Debezium
from floodmark.spec.rows.expectation import Expectation
from floodmark.spec.rows.kafka import Kafka
from floodmark.spec.rows.lookup import LookupTable
from floodmark.spec.rows.registry import SchemaRegistry
from floodmark.spec.rows.source import (
    Ascending,
    BoundedOutOfOrderness,
    FromColumn,
    Learned,
    Punctuated,
    Source,
)
from floodmark.spec.rows.sql_table import SqlTable
from floodmark.spec.values.amounts import Amount
from floodmark.spec.values.annotations import JsonText, Rescued, TimeFormat
from floodmark.spec.values.functions import Pane, Request
from floodmark.spec.values.secret import Env, SecretFile
from floodmark.spec.values.tolerance import Within
from floodmark.spec.windowing.aggregates import (
    Aggregate,
    approx_count_distinct,
    collect,
    count,
    count_distinct,
    distinct,
    first,
    last,
    max,
    max_by,
    mean,
    mean_distinct,
    median,
    min,
    min_by,
    mode,
    percentile,
    percentile_disc,
    stddev,
    sum,
    sum_distinct,
    top_n,
)
from floodmark.spec.windowing.evictors import KeepLast, KeepNear, KeepWithin
from floodmark.spec.windowing.frames import dense_rank, lag, lead, nth_value, rank, row_number
from floodmark.spec.windowing.partitions import Daily, Hourly
from floodmark.spec.windowing.triggers import (
    AfterCount,
    AfterDelay,
    AfterWatermark,
    Decision,
    EndOfInput,
    Every,
    Purging,
    Trigger,
    TriggerContext,
    all_of,
    any_of,
)
from floodmark.spec.windowing.windows import (
    Calendar,
    Count,
    Cumulative,
    Global,
    Session,
    Sliding,
    Tumbling,
    WindowAssigner,
)
from floodmark.spec.workspace import Settings, Workspace
from floodmark.sql.folder import sql_operators
from floodmark.sql.operator import sql_operator

__all__ = [
    "AfterCount",
    "AfterDelay",
    "AfterWatermark",
    "Aggregate",
    "AggregatingState",
    "Alert",
    "Amount",
    "Ascending",
    "BoundedOutOfOrderness",
    "BroadcastProcessFunction",
    "BroadcastState",
    "Calendar",
    "Change",
    "Checkpoints",
    "CoProcessFunction",
    "Connector",
    "Context",
    "Contract",
    "Count",
    "Counter",
    "Cumulative",
    "Daily",
    "Debezium",
    "Decision",
    "Delivery",
    "DeltaTable",
    "Email",
    "EndOfInput",
    "Env",
    "EventTime",
    "Every",
    "Expectation",
    "Files",
    "FromColumn",
    "Gauge",
    "Global",
    "Histogram",
    "Hourly",
    "JsonText",
    "Kafka",
    "KeepLast",
    "KeepNear",
    "KeepWithin",
    "Learned",
    "ListState",
    "LocalTime",
    "LookupTable",
    "MapState",
    "Meter",
    "ModelState",
    "ModelVersion",
    "Operator",
    "Outputs",
    "Pane",
    "Pattern",
    "ProcessFunction",
    "PromoteWhen",
    "Punctuated",
    "Purging",
    "ReducingState",
    "Request",
    "Rescued",
    "Restart",
    "Rollout",
    "Rows",
    "Savepoints",
    "SchemaRegistry",
    "SecretFile",
    "Session",
    "Settings",
    "Sliding",
    "Source",
    "SqlTable",
    "Store",
    "Stream",
    "TimeFormat",
    "Timer",
    "ToFiles",
    "ToKafka",
    "ToLake",
    "ToRedis",
    "ToSearch",
    "ToSql",
    "ToWebhook",
    "Trigger",
    "TriggerContext",
    "Tumbling",
    "Upgrades",
    "ValueState",
    "Webhook",
    "WindowAssigner",
    "Within",
    "Workspace",
    "all_of",
    "any_of",
    "approx_count_distinct",
    "begin",
    "collect",
    "connector",
    "count",
    "count_distinct",
    "dense_rank",
    "distinct",
    "first",
    "function",
    "lag",
    "last",
    "lead",
    "max",
    "max_by",
    "mean",
    "mean_distinct",
    "median",
    "min",
    "min_by",
    "mode",
    "no_skip",
    "nth_value",
    "operator",
    "operator_asset",
    "percentile",
    "percentile_disc",
    "rank",
    "row_number",
    "skip_past_last_event",
    "skip_to_first",
    "skip_to_last",
    "skip_to_next",
    "source_asset",
    "sql_operator",
    "sql_operators",
    "stddev",
    "sum",
    "sum_distinct",
    "top_n",
]
