"""The budget of a backfill: how much of a machine it may take, and how far behind it may leave the streams beside it."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from floodmark.core.errors import LifecycleError
from floodmark.core.time import describe_span, span

LEAST_MEMORY = MappingProxyType({"embedded": 256, "spark": 512})
"""Engine -> least memory with which it computes, MB."""
LEAST_LAG = 1000
"""Least lag that a budget may ask for, ms: a stream looks for rows once a second."""
_FORM = "cores=1,memory=512,lag=1 minute: any of them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of a bounded run. Between asset partitions it waits while a stream that it may hold up lags more than ``lag``.

    Args:
        cores: cores of the machine that the run may use; None for all.
        memory: memory of its engine, MB; None for that of the settings.
        lag: most event time that the operator's stream, and those upstream, may be behind their inputs, ms; None for no limit.
    """

    cores: int | None = None
    memory: int | None = None
    lag: int | None = None

    def check(self, engine: str, where: str = "--budget") -> None:
        """Refuse a budget with which the engine cannot work.

        Raises:
            LifecycleError: LIFECYCLE-204, it is too small.
        """
        least = {"cores": 1, "memory": LEAST_MEMORY.get(engine, 0), "lag": LEAST_LAG}
        small = [
            name for name, needed in least.items() if (value := getattr(self, name)) is not None and value < needed
        ]
        if small:
            works = {"cores": "cores=1", "memory": f"memory={least['memory']}", "lag": "lag=1 second"}
            got = ", ".join(f"{name}={_shown(name, getattr(self, name))}" for name in small)
            fix = f"The least that works: {','.join(works[name] for name in small)}"
            expected = f"a budget with which engine '{engine}' can compute"
            raise LifecycleError(where, expected, got, fix, code="LIFECYCLE-204")

    @staticmethod
    def parse(text: str, where: str = "--budget") -> Budget:
        """(``cores=1,memory=512,lag=1 minute``) -> the budget; memory in MB.

        Raises:
            LifecycleError: LIFECYCLE-205, a text of another form.
        """
        values = dict[str, int]()
        for part in text.split(","):
            name, _, value = (piece.strip() for piece in part.partition("="))
            known = name in {"cores", "memory", "lag"} and name not in values
            number = value.lower().removesuffix("mb").strip()
            if not known or not value or (name != "lag" and not number.isdecimal()):
                fix = f"Write it as {_FORM}. Memory is in megabytes."
                raise LifecycleError(where, _FORM, repr(text), fix, code="LIFECYCLE-205")
            values[name] = span(value, f"{where}, lag") if name == "lag" else int(number)
        return Budget(**values)


def _shown(name: str, value: int) -> str:
    return describe_span(value) if name == "lag" else str(value)
