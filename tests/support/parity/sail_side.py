"""What Sail answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

QUERIES = 4000
"""Of one server: each leaves some 160 kB behind."""
_SERVER = """
import sys
from pysail.spark import SparkConnectServer
server = SparkConnectServer(ip="127.0.0.1", port=0)
server.start(background=True)
print(server.listening_address[1], flush=True)
sys.stdin.read()
"""


class Sail:
    """A session on a server of its own, which is replaced now and then.

    Args:
        folder: with the tables as Parquet files.
        tables: their names.
    """

    def __init__(self, folder: Path, tables: Sequence[str] = ("one", "two")) -> None:
        self.folder, self.tables, self.count = folder, tables, QUERIES
        self.server: subprocess.Popen[str] | None = None
        self.session: Any = None

    def query(self, sql: str) -> pa.Table:
        """The rows of a query, in one request; an error is not asked for again."""
        from pyspark.sql.connect.plan import SQL

        self.count += 1
        if self.count >= QUERIES or self.server is None or self.server.poll() is not None:
            self.restart()
        client = self.session.client
        return client.to_table(SQL(sql).to_proto(client), {})[0]

    def restart(self) -> None:
        """Another server, with the tables as views."""
        from pyspark.sql.connect.session import SparkSession

        self.close()
        self.server = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            stderr=subprocess.DEVNULL,
        )
        port = self.server.stdout.readline().strip()
        self.session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
        self.session.client.set_retry_policies([])
        self.session.client.disable_reattachable_execute()
        self.session.conf.set("spark.sql.session.timeZone", "UTC")
        for name in self.tables:
            self.session.read.parquet(str(self.folder / f"{name}.parquet")).createOrReplaceTempView(name)
        self.count = 0

    def close(self) -> None:
        """End the server."""
        if self.server is None:
            return
        with suppress(Exception):
            self.session.client.close()
        self.server.stdin.close()
        try:
            self.server.wait(10)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
        self.server = None


def kind_of(kind: pa.DataType) -> str:
    """The Spark type of an Arrow type; another text where no type of Spark's is exchanged so."""
    from pyspark.sql.pandas.types import from_arrow_type

    if pa.types.is_timestamp(kind) and kind.unit != "us":
        return str(kind)
    try:
        return from_arrow_type(kind).simpleString()
    except Exception:  # noqa: BLE001 - a type that Spark lacks is an answer, too
        return str(kind)


def column(values: pa.ChunkedArray) -> list[str]:
    """Values in the words of ``Answers.java``."""
    kind = values.type
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        values = values.cast(pa.int64())
    elif pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_float32(kind):
        return ["null" if v is None else f"f{np.float32(v)!s}" for v in values.to_pylist()]
    elif pa.types.is_nested(kind):
        return [_nested(v, kind) for v in values.to_pylist()]
    return [_text(v) for v in values.to_pylist()]


def _text(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case float():
            return f"f{value!r}"
        case str():
            return "s" + value.encode("utf-8", "surrogatepass").hex()
        case bytes():
            return "b" + value.hex()
        case Decimal():
            return f"{value:f}"
        case _:
            return str(value)


def _nested(value: Any, kind: pa.DataType) -> str:
    if value is None:
        return "null"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"[{','.join(_nested(v, kind.value_type) for v in value)}]"
    if pa.types.is_map(kind):
        return "{" + ",".join(f"{_nested(k, kind.key_type)}:{_nested(v, kind.item_type)}" for k, v in value) + "}"
    if pa.types.is_struct(kind):
        parts = (_nested(value[kind.field(i).name], kind.field(i).type) for i in range(kind.num_fields))
        return f"({','.join(parts)})"
    if pa.types.is_temporal(kind):
        return column(pa.chunked_array([pa.array([value], kind)]))[0]
    return f"f{np.float32(value)!s}" if pa.types.is_float32(kind) else _text(value)
