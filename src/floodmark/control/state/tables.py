"""Tables of the control store. SQLite and PostgreSQL have the same."""

from __future__ import annotations

import sqlalchemy as sa

METADATA = sa.MetaData()
STREAMS = sa.Table(
    "floodmark_streams",
    METADATA,
    sa.Column("operator", sa.String, primary_key=True),
    sa.Column("lake", sa.String, primary_key=True),
    sa.Column("root", sa.String, nullable=False),
    sa.Column("environment", sa.String, nullable=False),
    sa.Column("package", sa.String, nullable=False),
    sa.Column("version", sa.String, nullable=False),
    sa.Column("desired", sa.String, nullable=False),
    sa.Column("changed_at", sa.Float, nullable=False),
    sa.Column("kind", sa.String, nullable=False, server_default="operator"),
    sa.Column("restart", sa.JSON),
    sa.Column("run_when", sa.String, nullable=False, server_default="always"),
    sa.Column("hosting", sa.String, nullable=False, server_default="isolated"),
    sa.Column("watch", sa.JSON),
    sa.Column("held", sa.Text),
)
ONE_LAKE = "floodmark_deployments"
"""Table of older stores, which identified a stream by its operator alone."""
ADDED = {"kind", "restart", "run_when", "hosting", "watch", "held"}
"""Columns that this table lacks."""
DRIVERS = sa.Table(
    "floodmark_drivers",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("operator", sa.String, nullable=False, index=True),
    sa.Column("lake", sa.String),
    sa.Column("version", sa.String, nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("pid", sa.Integer),
    sa.Column("born", sa.Float),
    sa.Column("log", sa.String, nullable=False),
    sa.Column("started_at", sa.Float, nullable=False),
    sa.Column("heartbeat_at", sa.Float, nullable=False),
    sa.Column("batch", sa.Integer),
    sa.Column("progress", sa.BigInteger),
    sa.Column("ended_at", sa.Float),
    sa.Column("reason", sa.Text),
    sa.Column("host", sa.String),
    sa.Column("usage", sa.JSON),
    sa.Column("kind", sa.String, nullable=False, server_default="operator"),
    sa.Column("read_to", sa.JSON),
    sa.Column("shares", sa.String),
    sa.UniqueConstraint("operator", "epoch", name="floodmark_drivers_epoch"),
)
LEASES = sa.Table(
    "floodmark_leases",
    METADATA,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("holder", sa.String, nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("until", sa.Float, nullable=False),
)
ACTIONS = sa.Table(
    "floodmark_actions",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("operator", sa.String, nullable=False, index=True),
    sa.Column("lake", sa.String),
    sa.Column("who", sa.String, nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("began_at", sa.Float, nullable=False),
    sa.Column("step", sa.String, nullable=False),
    sa.Column("old", sa.JSON, nullable=False),
    sa.Column("version", sa.String, nullable=False),
    sa.Column("savepoint", sa.String),
    sa.Column("ended_at", sa.Float),
    sa.Column("reason", sa.Text),
    sa.Column("request", sa.JSON),
)
JOURNAL = sa.Table(
    "floodmark_journal",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("who", sa.String, nullable=False),
    sa.Column("action", sa.String, nullable=False),
    sa.Column("operator", sa.String),
    sa.Column("detail", sa.Text, nullable=False),
)
MEASURED = sa.Table(
    "floodmark_measured",
    METADATA,
    sa.Column("operator", sa.String, primary_key=True),
    sa.Column("lake", sa.String, primary_key=True),
    sa.Column("history", sa.String, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("counted", sa.BigInteger, nullable=False),
    sa.Column("driver", sa.Integer, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("totals", sa.JSON, nullable=False),
    sa.Column("graph", sa.JSON),
)
"""Table of sums over a stream's commits, used by ``control.state.measures``."""
MEASURES = sa.Table(
    "floodmark_measures",
    METADATA,
    sa.Column("operator", sa.String, primary_key=True),
    sa.Column("lake", sa.String, primary_key=True),
    sa.Column("slot", sa.Integer, primary_key=True),
    sa.Column("ordinal", sa.BigInteger, nullable=False),
    sa.Column("measure", sa.JSON, nullable=False),
)
"""Table of a stream's newest commits, a ring of slots, used by ``control.state.measures``."""
ROLLOUTS = sa.Table(
    "floodmark_rollouts",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("operator", sa.String, nullable=False, index=True),
    sa.Column("lake", sa.String, nullable=False),
    sa.Column("open", sa.String, unique=True),
    sa.Column("root", sa.String, nullable=False),
    sa.Column("environment", sa.String, nullable=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("experiment", sa.String, nullable=False),
    sa.Column("arm", sa.String, nullable=False),
    sa.Column("package", sa.String, nullable=False),
    sa.Column("version", sa.String, nullable=False),
    sa.Column("declared", sa.Text, nullable=False),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("since", sa.Float, nullable=False),
    sa.Column("due", sa.Float, nullable=False, index=True),
    sa.Column("gates", sa.Text, key="guardrails", nullable=False),
    sa.Column("judged_at", sa.Float),
    sa.Column("held_since", sa.BigInteger),
    sa.Column("waits", sa.Text, nullable=False),
    sa.Column("approved", sa.Text, nullable=False),
    sa.Column("aborted", sa.Text, nullable=False),
    sa.Column("savepoint", sa.String, nullable=False),
    sa.Column("steps", sa.Text, nullable=False),
    sa.Column("who", sa.String, nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("began_at", sa.Float, nullable=False),
    sa.Column("ended_at", sa.Float),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("memory", sa.Text),
)
"""Table of rollouts, used by ``control.state.rollout``."""
HEALTH = sa.Table(
    "floodmark_health",
    METADATA,
    sa.Column("operator", sa.String, primary_key=True),
    sa.Column("lake", sa.String, primary_key=True),
    sa.Column("changes", sa.Integer, nullable=False),
    sa.Column("level", sa.String, nullable=False),
    sa.Column("condition", sa.String, nullable=False),
    sa.Column("since", sa.Float, nullable=False),
    sa.Column("crash", sa.Integer, nullable=False),
)
UNMET = sa.Table(
    "floodmark_unmet",
    METADATA,
    sa.Column("operator", sa.String, primary_key=True),
    sa.Column("lake", sa.String, primary_key=True),
    sa.Column("asset", sa.String, primary_key=True),
    sa.Column("expectation", sa.String, primary_key=True),
    sa.Column("start", sa.BigInteger, primary_key=True),
    sa.Column("end", sa.BigInteger, primary_key=True),
    sa.Column("level", sa.String, nullable=False),
)
"""Table of the asset partitions that do not meet an expectation, used by ``control.state.messages``."""
MESSAGES = sa.Table(
    "floodmark_messages",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("key", sa.String, nullable=False, unique=True),
    sa.Column("operator", sa.String, nullable=False, index=True),
    sa.Column("lake", sa.String, nullable=False),
    sa.Column("alert", sa.Integer, nullable=False),
    sa.Column("change", sa.JSON, nullable=False),
    sa.Column("state", sa.String, nullable=False, index=True),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("due", sa.Float, nullable=False),
    sa.Column("error", sa.Text, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
)
"""Tables of the health of streams that alerts have told of, and of their messages, used by ``control.state.messages``."""
