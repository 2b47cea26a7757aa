"""Sessions on a server of Spark Connect that somebody else runs: the client alone is here, no JVM. What the server lacks is said when a session begins."""

from __future__ import annotations

import atexit
import os
import re
import socket
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from grpc import RpcError
from pyspark.errors import PySparkException

from floodmark.core.errors import SetupError
from floodmark.engines.frames.client import importable, note_spark
from floodmark.engines.spark.setup.home import RELEASE
from floodmark.engines.spark.setup.master import ANSWER_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOKEN = "spark.connect.token"  # noqa: S105 - the name of a setting
"""Setting with the token that a server, or the proxy before it, asks for."""
_PORT = 15002
_MODE = "SPARK_CONNECT_MODE_ENABLED"
"""Variable by which ``pyspark.sql.functions`` makes columns of Spark Connect."""
_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.variable.substitute": "false",  # else the text '${x}' in an expression is an empty one
        "spark.sql.legacy.allowHashOnMapType": "true",  # attempts hash what an expression gives, also a map
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.execution.arrow.maxBytesPerBatch": "67108864",  # the default lets one batch grow to 2 GB
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default, INT96, has no statistics
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    }
)
"""Settings that decide about rows, whatever the server's own are; the reasons are those of ``session.builder``."""
_RETRIES = 4
"""Tries after a lost connection, 4 s in all; the client's own take ten minutes."""
_WRITTEN_TOKEN = re.compile(r";\s*token=", re.IGNORECASE)


_LOST = re.compile(r"INVALID_HANDLE\.SESSION_\w+|StatusCode\.UNAVAILABLE")
"""What the client says where the server has begun again, or does not know the session any more."""


def connected_session(address: str, extra: Mapping[str, str], secrets: Mapping[str, str]) -> SparkSession:
    """A new session on a server.

    Args:
        address: ``sc://HOST:PORT``, with the parameters of Spark's own connection strings.
        extra: settings of the session that win over floodmark's; those that only the start of a server can set are left out.
        secrets: settings with secrets; ``spark.connect.token`` alone is known.

    Raises:
        SetupError: SETUP-120 no server answers, SETUP-121 a token that is written out, SETUP-122 another Spark, SETUP-123 a server without Delta.
    """
    if _WRITTEN_TOKEN.search(address):
        fix = f'Name the variable or the file that holds it: Settings(spark=(("{TOKEN}", Env("SPARK_TOKEN")),)).'
        where, got = "Spark master sc://, token", "one that is written out"
        raise SetupError(where, "a secret by reference", got, fix, code="SETUP-121")
    reach(address)
    os.environ.update({_MODE: "1", "TZ": "UTC"})
    if hasattr(time, "tzset"):
        time.tzset()
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]", UserWarning)  # the error that follows says it
    with importable():
        from pyspark.sql.connect.session import SparkSession as Connected  # noqa: PLC0415 - needs grpcio, which Spark alone does not
    token = secrets.get(TOKEN)
    target = address if token is None else f"{address.rstrip('/')}{'' if ';' in address else '/'};token={token}"
    try:
        spark = Connected(target)
        atexit.register(_close, spark)
        _use(spark, extra)
    except PySparkException as error:
        raise _no_session(address, error) from error
    note_spark(spark)
    session = cast("SparkSession", spark)
    _check(session, address)
    return session


def reach(address: str) -> None:
    """Make sure that a server accepts connections.

    Raises:
        SetupError: SETUP-120, it does not within seconds.
    """
    why = refusal(address)
    if why is not None:
        fix = "Start it, or correct the master in resources/settings.py or FLOODMARK_MASTER; on this machine alone: FLOODMARK_MASTER='local[2]'."
        expected = f"a server of Spark Connect that answers within {ANSWER_SECONDS} s"
        raise SetupError(f"Spark master {bare(address)}", expected, why, fix, code="SETUP-120")


def refusal(address: str) -> str | None:
    """Why no connection to a server can be made; None if one can."""
    try:
        parts = urlsplit(address.partition(";")[0])
        socket.create_connection((parts.hostname or "", parts.port or _PORT), timeout=ANSWER_SECONDS).close()
    except (OSError, ValueError) as error:
        return str(error)
    return None


def loss(error: BaseException, address: str) -> str | None:
    """What is lost with a server, or with a session on it, if that is why work has failed; None for any other failure.

    Args:
        error: of the work; its causes are looked at.
        address: of the server.
    """
    if (why := refusal(address)) is not None:
        return why
    cause: BaseException | None = error
    while cause is not None:
        if match := _LOST.search(str(cause)):
            return match[0]
        cause = cause.__cause__ or cause.__context__
    return None


def bare(address: str) -> str:
    """An address without its parameters, which may be private."""
    return address.partition(";")[0].rstrip("/")


def _use(spark: Any, extra: Mapping[str, str]) -> None:
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415 - needs grpcio, as above

    spark.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])
    for name, setting in {**_SETTINGS, **extra}.items():
        if name in _SETTINGS or spark.conf.isModifiable(name):
            spark.conf.set(name, setting)


def _check(spark: SparkSession, address: str) -> None:
    """Make sure that a server has the Spark and the Delta that rows are computed with.

    Raises:
        SetupError: SETUP-122 and SETUP-123.
    """
    where, version = f"Spark master {bare(address)}", str(spark.version)
    if not version.startswith(f"{RELEASE}."):
        fix = f"Name a server of Spark {RELEASE}, or run it on this machine: --engine embedded, or FLOODMARK_MASTER='local[2]'."
        raise SetupError(where, f"Spark {RELEASE}, whose answers are proven", f"Spark {version}", fix, code="SETUP-122")
    extensions = str(spark.conf.get("spark.sql.extensions", ""))
    if "DeltaSparkSessionExtension" not in extensions:
        fix = (
            "Start it with Delta: --packages io.delta:delta-spark_4.2_2.13:4.4.0 --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
            "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        got = f"spark.sql.extensions = {extensions or 'none'}"
        raise SetupError(where, "a server with Delta", got, fix, code="SETUP-123")


def _no_session(address: str, error: Exception) -> SetupError:
    line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    fix = "See that it is a server of Spark Connect 4.2, and what it wants: a token (spark.connect.token), TLS (sc://HOST:PORT/;use_ssl=true)."
    return SetupError(f"Spark master {bare(address)}", "a session", line, fix, code="SETUP-120")


def stop(spark: SparkSession) -> None:
    """End a session; its server goes on. The server may be gone."""
    _close(spark)


def _close(spark: Any) -> None:
    """End a session before Python ends, which would wait for the threads of its connection for ever."""
    with suppress(PySparkException, RpcError, ValueError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not spark.is_stopped:
            spark.stop()
