"""Debezium: changes of a table as rows, in the order of the database's log; changes that a connector sends again are dropped."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from floodmark.connectors.entries import Record
from floodmark.connectors.judging.validation import CHANGE_TYPE
from floodmark.connectors.messages.decoding import json_object
from floodmark.connectors.unit import Undecodable
from floodmark.spec.rows.debezium import Debezium

_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LOG_DIGITS, _ROW_DIGITS = 20, 10
_OPERATIONS = frozenset("cudrtm")
"""Debezium's letters of changes."""
_TOGETHER = 1_000
"""Most changes of one place in a database's log that are remembered."""
_NO_BEFORE = 'without the row before it: in PostgreSQL ALTER TABLE ... REPLICA IDENTITY FULL; or Debezium(read="events"), which does not need it'


class Repeated(Undecodable):
    """A row that repeats what has landed, which no replay can land."""


class Change(NamedTuple):
    """A change.

    Args:
        op: Debezium's letter.
        before: the row before it.
        after: the row after it.
        scope: what numbers its log: the connector's name and the server.
        table: where the row is.
        order: text that orders the changes of a scope; empty if its database numbers none.
        source: the rest of what is known of it.
    """

    op: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    scope: str
    table: str
    order: str
    source: Mapping[str, Any]
    transaction: str | None

    @property
    def snapshot(self) -> str:
        """Empty for a change that is in the log; of a row of a snapshot, how it was taken."""
        stated = self.source.get("snapshot")
        text = str(stated).lower() if stated not in (None, False) else "false"
        return text if text != "false" else "true" if self.op == "r" else ""

    def digest(self) -> str:
        """Of what it changes."""
        content = json.dumps([self.table, self.op, self.before, self.after], default=str, sort_keys=True)
        return hashlib.blake2b(content.encode(), digest_size=6).hexdigest()


@dataclass(slots=True)
class Reached:
    """How far the changes of a partition have been read, per scope.

    Args:
        at: scope -> [order of the latest change, digests of the changes of that order].
        snapshots: scope and table -> order of the snapshot that has landed.
    """

    at: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    snapshots: dict[str, str] = field(default_factory=dict)

    def as_text(self) -> str:
        """For ``from_text``."""
        return json.dumps([self.at, self.snapshots], separators=(",", ":"))

    @staticmethod
    def from_text(text: str) -> Reached:
        """From ``as_text``; at the beginning of a partition, of an empty text."""
        at, snapshots = json.loads(text) if text else ({}, {})
        return Reached({scope: (order, digests) for scope, (order, digests) in at.items()}, snapshots)

    def is_repeat(self, change: Change) -> bool:
        """Whether a change of the log has been read before, as its place in the log is before the latest one's; it is noted otherwise."""
        if change.snapshot or not change.order:
            return False
        order, digests = self.at.get(change.scope, ("", []))
        if change.order < order:
            return True
        digest = change.digest()
        if change.order == order:
            if digest in digests:
                return True
            self.at[change.scope] = order, [*digests, digest][-_TOGETHER:]
        else:
            self.at[change.scope] = change.order, [digest]
        return False

    def is_other_snapshot(self, change: Change) -> bool:
        """Whether a row is of another snapshot than the first one of its table, so that it repeats what has landed."""
        if not change.snapshot:
            return False
        if change.snapshot == "incremental":
            return True
        known = self.snapshots.setdefault(f"{change.scope} {change.table}", change.order)
        return known != change.order


def rows_of(value: Mapping[str, Any], settings: Debezium, reached: Reached | None) -> list[dict[str, Any]]:
    """The rows of a change: none, one, or the old and the new one.

    Args:
        value: the envelope, also within ``payload``.
        settings: of the source.
        reached: by the changes before; None: nothing is known of them.

    Raises:
        Undecodable: no change, or one that cannot be a row.
    """
    change = change_of(value)
    if change.op == "m" or (reached is not None and reached.is_repeat(change)):
        return []
    if change.op == "t":
        reason = "expected changes of rows, got a truncate, which does not name them"
        raise Undecodable(reason)
    added = {
        "_op": change.op,
        "_table": change.table,
        "_changed_at": change.source.get("ts_ms"),
        "_order": change.order or None,
        "_transaction": change.transaction,
        "_snapshot": bool(change.snapshot),
    }
    kind = {"d": "delete", "u": "update_postimage"}.get(change.op, "insert")
    if settings.read == "events":
        row = change.before if change.op == "d" else change.after
        return [{**_there(row, f"a change {change.op} with a row"), **added, CHANGE_TYPE: kind}]
    if reached is not None and reached.is_other_snapshot(change):
        reason = 'a row of a further snapshot, which repeats what has landed: land the topic under a new source name, or Debezium(read="events")'
        raise Repeated(reason)
    rows = []
    if change.op in {"u", "d"}:
        if change.before is None:
            reason = f"{'an update' if change.op == 'u' else 'a delete'} {_NO_BEFORE}"
            raise Undecodable(reason)
        rows.append({**change.before, **added, CHANGE_TYPE: "update_preimage" if change.op == "u" else "delete"})
    if change.op != "d":
        after = _there(change.after, f"a change {change.op} with a row after it")
        rows.append({**after, **added, CHANGE_TYPE: kind})
    return rows


def file_records(records: Iterable[Record], settings: Debezium) -> Iterator[Record]:
    """The rows of the changes in a file, which are dropped where the file has them again; their positions are as those of messages.

    Args:
        records: of the file: JSON, or dictionaries.
        settings: of the source.
    """
    reached, each = Reached(), 2 if settings.read == "changes" else 1
    for record in records:
        position = each * record.position
        try:
            envelope = json_object(record.raw) if record.raw else record.value
            rows = rows_of(envelope if isinstance(envelope, Mapping) else {}, settings, reached)
        except Undecodable as error:
            raw = json.dumps({"change": record.raw.decode(errors="replace") or record.value}, default=str)
            yield Record(position, raw.encode(), None, str(error))
        else:
            yield from (Record(position + number, b"", row) for number, row in enumerate(rows))


def _there(row: Mapping[str, Any] | None, expected: str) -> Mapping[str, Any]:
    if row is None:
        reason = f"expected {expected}, got none"
        raise Undecodable(reason)
    return row


def change_of(value: Mapping[str, Any]) -> Change:
    """The change in an envelope. Raises Undecodable."""
    if isinstance(value.get("payload"), Mapping) and "op" not in value:
        schema = value.get("schema")
        payload = value["payload"]
        value = _by_schema(payload, schema) if isinstance(schema, Mapping) else payload
    op, source = value.get("op"), value.get("source")
    before, after = value.get("before"), value.get("after")
    images = all(image is None or isinstance(image, Mapping) for image in (before, after))
    if not isinstance(op, str) or op not in _OPERATIONS or not isinstance(source, Mapping) or not images:
        reason = f"expected a change in Debezium's envelope, with op, source, before and after, got {', '.join(map(str, value)) or 'no field'}"
        raise Undecodable(reason)
    transaction = value.get("transaction")
    parts = (source.get("db"), source.get("schema"), source.get("table") or source.get("collection"))
    return Change(
        op=op,
        before=before,
        after=after,
        scope=f"{source.get('name', '')} {source.get('server_id', '')}".strip(),
        table=".".join(str(part) for part in parts if part),
        order=_order(source),
        source=source,
        transaction=str(transaction["id"]) if isinstance(transaction, Mapping) and transaction.get("id") else None,
    )


def _order(source: Mapping[str, Any]) -> str:
    """The place of a change in its database's log, as a text; empty if the database has none that orders all changes."""
    try:
        order = _ORDERS.get(str(source.get("connector")))
        return "" if order is None else order(source)
    except (KeyError, TypeError, ValueError):
        return ""


def _postgresql(source: Mapping[str, Any]) -> str:
    """By the end of the transaction before, then by place: transactions that overlap are sent one after the other."""
    if source.get("sequence"):
        before, own = (int(part or 0) for part in json.loads(source["sequence"]))
    else:
        before, own = 0, int(source["lsn"])
    return f"{before:0{_LOG_DIGITS}}-{own:0{_LOG_DIGITS}}"


def _mysql(source: Mapping[str, Any]) -> str:
    name, _, number = str(source["file"]).rpartition(".")
    position, row = int(source["pos"]), int(source.get("row") or 0)
    return f"{name}.{int(number):0{_ROW_DIGITS}}-{position:0{_LOG_DIGITS}}-{row:0{_ROW_DIGITS}}"


def _sql_server(source: Mapping[str, Any]) -> str:
    serial = int(source.get("event_serial_no") or 0)
    return f"{source['commit_lsn']}-{source.get('change_lsn') or ''}-{serial:0{_ROW_DIGITS}}"


_ORDERS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
    "sqlserver": _sql_server,
    "db2": _sql_server,
}
"""Connector of Debezium -> (``source`` of a change) -> its place in the log."""


def _by_schema(payload: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    """The payload of an envelope by its schema. Raises Undecodable for a value that is none of its type."""
    try:
        return _converted(payload, schema)
    except (ValueError, ArithmeticError, TypeError, LookupError) as error:
        reason = f"expected values as the schema of the change declares them: {type(error).__name__}: {error}"
        raise Undecodable(reason) from error


def _converted(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value of JSON by its schema of Kafka Connect: times, dates, decimals and bytes are such."""
    if value is None:
        return None
    match schema:
        case {"name": str(name)} if name in _NAMED:
            return _NAMED[name](value, schema)
        case {"type": "struct", "fields": list(fields)} if isinstance(value, Mapping):
            kinds = {inner["field"]: inner for inner in fields}
            return {key: _converted(inner, kinds.get(key, {})) for key, inner in value.items()}
        case {"type": "array", "items": Mapping() as items} if isinstance(value, list):
            return [_converted(inner, items) for inner in value]
        case {"type": "map", "values": Mapping() as values} if isinstance(value, Mapping):
            return {key: _converted(inner, values) for key, inner in value.items()}
        case {"type": "bytes"} if isinstance(value, str):
            return base64.b64decode(value)
        case _:
            return value


def _instant(unit: float, name: str) -> Callable[[Any, Mapping[str, Any]], Any]:
    """(microseconds of a unit, its name) -> (units since 1970, schema) -> the instant; a text, which no contract takes as a time, where the instant has no date."""

    def instant(value: Any, _: Mapping[str, Any]) -> Any:
        microseconds = int(value) * int(unit) if unit >= 1 else int(value) // round(1 / unit)
        try:
            return _FIRST + timedelta(microseconds=microseconds)
        except OverflowError:
            return f"{value} {name} since 1970"

    return instant


def _decimal(value: Any, schema: Mapping[str, Any]) -> Decimal:
    scale = int(schema.get("parameters", {}).get("scale", 0))
    unscaled = Decimal(int.from_bytes(base64.b64decode(value), "big", signed=True)).as_tuple()
    return Decimal((unscaled.sign, unscaled.digits, -scale))  # ``scaleb`` would round to 28 digits


def _day(value: Any, _: Mapping[str, Any]) -> Any:
    try:
        return _FIRST.date() + timedelta(days=int(value))
    except OverflowError:
        return f"{value} days since 1970"


_NAMED: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "io.debezium.time.Timestamp": _instant(1_000, "milliseconds"),
    "org.apache.kafka.connect.data.Timestamp": _instant(1_000, "milliseconds"),
    "io.debezium.time.MicroTimestamp": _instant(1, "microseconds"),
    "io.debezium.time.NanoTimestamp": _instant(0.001, "nanoseconds"),
    "io.debezium.time.Date": _day,
    "org.apache.kafka.connect.data.Date": _day,
    "org.apache.kafka.connect.data.Decimal": _decimal,
}
"""Name of a schema of Kafka Connect -> (value, schema) -> the value that is meant."""
