"""Impurities of a user's function: it reads a clock, a random number, a file or the network, so a replay may differ.

Found in the code that the function reaches (``core.code.reach``), without running it: the user's helpers, decorators and defaults are
followed, functions of libraries are recognised by name. An import alone is no impurity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from floodmark.core.code import Reach

_MODULES = frozenset(
    {"random", "secrets", "uuid", "socket", "requests", "httpx", "urllib", "http", "subprocess", "numpy.random"}
)
"""Modules whose functions are all impure, but for ``_PURE``."""

_PURE = frozenset({"urllib.parse", "http.HTTPStatus", "uuid.UUID", "uuid.uuid3", "uuid.uuid5"})
"""Pure functions and classes of these modules."""

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
"""Impure functions of other modules."""


def impurities(function: Callable[..., Any] | type) -> list[str]:
    """Names such as ``time.time`` or ``random.random``, in the order in which the code refers to them; empty for a pure function."""
    names = Reach().of(function).libraries
    return list(dict.fromkeys(_short(name) for name in names if _reads(name)))


def _reads(name: str) -> bool:
    parts = name.split(".")
    begins = {".".join(parts[: count + 1]) for count in range(len(parts))}
    return not begins.isdisjoint(_MODULES | _NAMES) and begins.isdisjoint(_PURE)


def _short(name: str) -> str:
    """``datetime.now`` for ``datetime.datetime.now``, ``open`` for ``builtins.open``."""
    module, _, qualname = name.partition(".")
    return qualname if module == "builtins" or (module == "datetime" and "." in qualname) else name
