"""The memory limit of Spark's Python workers, ``spark.executor.pyspark.memory``, and what follows from it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from floodmark.core.errors import SetupError

MEMORY = "spark.executor.pyspark.memory"
_CORES = "spark.executor.cores"
_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"
MODULES = 400 << 20
"""Bytes of address space of a worker that has imported its modules, before its first row."""
LEAST = 512 << 20
"""The least limit with which a worker has room for rows."""
_PART = 16
"""A batch of rows is at most one of so many parts of what a worker has left: it is there thrice while the next batch is read."""
_UNITS = {"b": 1, "k": 1 << 10, "": 1 << 20, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
"""Unit of Spark's -> bytes; this setting is in MiB without one."""


def limit(settings: Mapping[str, str]) -> int | None:
    """Bytes of address space of each worker; None without a limit, or if Spark shall refuse its text.

    Spark divides the setting by ``spark.executor.cores``, which is 1 unless set, however many cores ``local[N]`` names.
    """
    size = re.fullmatch(r"\s*(\d+)\s*([bkmgt]?)b?\s*", settings.get(MEMORY, ""), re.IGNORECASE)
    cores = settings.get(_CORES, "1")
    if size is None or not cores.isdecimal() or int(cores) < 1:
        return None
    mebibytes = int(size[1]) * _UNITS[size[2].lower()] >> 20
    return (mebibytes // int(cores)) << 20 or None


def following(settings: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings that follow from the limit: the bytes of a batch of rows.

    Raises:
        SetupError: SETUP-111, a worker would not have room for rows.
    """
    most = limit(settings)
    if most is None:
        return {}
    if most < LEAST:
        cores = int(settings.get(_CORES, "1"))
        fix = (
            f"The limit is one of address space, of which imported modules take {MODULES >> 20} MiB. "
            f'Set ("{MEMORY}", "{(LEAST >> 20) * cores}m") or more in Settings(spark=...), or leave it out.'
        )
        shared = f", {_CORES} {cores}" if cores > 1 else ""
        got = f"{most >> 20} MiB ({settings[MEMORY]}{shared})"
        raise SetupError(
            f"Settings(spark=...), {MEMORY}", f"at least {LEAST >> 20} MiB per worker", got, fix, code="SETUP-111"
        )
    return {_BATCH: str(min((most - MODULES) // _PART, 1 << 26))}
