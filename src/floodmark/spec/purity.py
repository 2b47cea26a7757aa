"""What a function of the user reads beside its arguments: a clock, a random number, a file, the network. A replay may answer otherwise.

Read off what the function reaches (``core.reach``), without running it: helpers, decorators and defaults of the user's are looked into,
libraries are told by name. What is only imported says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from floodmark.core.code import Reach

_MODULES = frozenset(
    {"random", "secrets", "uuid", "socket", "requests", "httpx", "urllib", "http", "subprocess", "numpy.random"}
)
"""Modules whose every function does."""

_PURE = frozenset({"urllib.parse", "http.HTTPStatus", "uuid.UUID", "uuid.uuid3", "uuid.uuid5"})
"""What of them does not."""

_NAMES = frozenset(
    {
        f"time.{name}"
        for name in (
            "time",
            "time_ns",
            "monotonic",
            "monotonic_ns",
            "perf_counter",
            "perf_counter_ns",
            "localtime",
            "gmtime",
        )
    }
    | {f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")}
    | {"datetime.date.today", "pandas.Timestamp.now", "pandas.Timestamp.utcnow", "pandas.Timestamp.today"}
    | {f"os.{name}" for name in ("urandom", "environ", "getenv", "getpid", "listdir", "scandir", "stat")}
    | {"builtins.open", "builtins.input", "io.open"}
)
"""Functions of other modules that do."""


def impurities(function: Callable[..., Any] | type) -> list[str]:
    """Names such as ``time.time`` or ``random.random``, in the order in which they are met; empty for a function of its arguments alone."""
    names = Reach().of(function).libraries
    return list(dict.fromkeys(_short(name) for name in names if _reads(name)))


def _reads(name: str) -> bool:
    parts = name.split(".")
    begins = {".".join(parts[: count + 1]) for count in range(len(parts))}
    return not begins.isdisjoint(_MODULES | _NAMES) and begins.isdisjoint(_PURE)


def _short(name: str) -> str:
    """``datetime.now`` for ``datetime.datetime.now``, ``open`` for ``builtins.open``."""
    module, _, rest = name.partition(".")
    return rest if module == "builtins" or (module == "datetime" and "." in rest) else name
