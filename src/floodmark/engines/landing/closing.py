"""Closing of a source: its end of input lands once looks before and after it find nothing left to land."""

from __future__ import annotations

import time
from collections.abc import Mapping

from floodmark.core.errors import LifecycleError
from floodmark.engines.landing.lander import Lander
from floodmark.engines.landing.looks import WRITING, Waiting
from floodmark.engines.landing.session import Session

_NAMED = 10
"""Most units of a kind that an error names."""
_LOOK_SECONDS, _LOOK_SHARE = 0.2, 4
"""Least time between two looks, and least multiple of the time that a look takes."""
_LIMIT = "left by the limit of commits"
_REFUSED = {
    "unreadable": "not readable to its end",
    "replaced": "changed after landing",
}
"""Status of a unit whose rows are not in the log -> why it holds the end."""
_UNFINISHED = "unfinished by its name"


def end(landing: Lander, session: Session, wait_seconds: float) -> None:
    """Land the end of input once nothing is left to land. Does nothing if the session is stopped.

    An end behind which a unit has come in meanwhile is taken back, the unit lands, and the end lands again.

    Args:
        landing: at the last commit of the log.
        session: of the landing, which counts the commits.
        wait_seconds: longest wait for units that do not land by themselves once they are old enough.

    Raises:
        LifecycleError: LIFECYCLE-185, units are left; LIFECYCLE-186, a unit has come in behind the end, and the end could not be taken back.
    """
    deadline = time.monotonic() + wait_seconds
    while not session.is_stopped():
        began = time.monotonic()
        holding = _holding(landing, session)
        if session.is_stopped():
            return
        if not holding:
            session.count(landing.end())
            holding = _holding(landing, session)
            if not holding:
                return
            _take_back(landing, session, holding)
            continue
        if _is_final(holding, waited=time.monotonic() >= deadline):
            landing.close()
            raise _error_incomplete(landing.source.name, holding)
        landing.waiting.clear()
        session.wait(max(_LOOK_SECONDS, _LOOK_SHARE * (time.monotonic() - began)))


def _is_final(holding: Mapping[str, Waiting], *, waited: bool) -> bool:
    """True if no further look will find that nothing holds the end, or the longest wait is over."""
    kinds = {waiting.why for waiting in holding.values()}
    ages = any(waiting.ages for waiting in holding.values())
    return _LIMIT in kinds or (waited and (WRITING in kinds or not ages))


def _holding(landing: Lander, session: Session) -> Mapping[str, Waiting]:
    """Unit -> why it holds the end of input, after all units that can land have landed."""
    if not landing.last.ended:
        while any(unit.name not in landing.waiting for unit in landing.left()) and not session.is_over():
            session.run(until_caught_up=True, poll_seconds=0)
    left = {unit.name: landing.waiting.get(unit.name, Waiting(_LIMIT)) for unit in landing.left()}
    return _of_folder(landing) | left


def _of_folder(landing: Lander) -> dict[str, Waiting]:
    """File -> why it holds the end though it is not pending: just changed, unfinished, or refused and still there."""
    reader, holding = landing.reader, dict[str, Waiting]()
    refused, now, least = landing.landed.refused(), time.time_ns(), landing.looks.min_age * 1_000_000
    for unit, unfinished, hidden in reader.unsettled():
        name, age, known = unit.name, now - unit.modified, refused.get(unit.name)
        if unfinished:
            holding[name] = Waiting(_UNFINISHED)
        elif known is not None and (known.size, known.modified) == (unit.size, unit.modified):
            holding[name] = Waiting(_REFUSED[known.status])
        elif 0 <= age < least and (landing.landed.same(name, unit.size, unit.modified) or hidden):
            holding[name] = Waiting("just changed", f"{age / 1e9:.1f} s ago", ages=True)
    return holding


def _take_back(landing: Lander, session: Session, holding: Mapping[str, Waiting]) -> None:
    """Take back an end behind which units have come in.

    Raises:
        LifecycleError: LIFECYCLE-186, a stream runs or has read the end.
    """
    try:
        session.count(landing.reopen())
    except LifecycleError as error:
        landing.close()
        name = landing.source.name
        raise LifecycleError(
            f"source '{name}'",
            "nothing behind its end of input, or an end that can be taken back",
            f"{_named(holding)}; {error.where}: {error.got}",
            f"The end of input has landed, these units have not. {error.fix} Then: floodmark land {name} --reopen --end",
            code="LIFECYCLE-186",
        ) from error


def _error_incomplete(name: str, holding: Mapping[str, Waiting]) -> LifecycleError:
    kinds = {waiting.why for waiting in holding.values()}
    fix = "The end of input has not landed, all units that are complete have."
    if kinds & {*_REFUSED.values()}:
        fix += f" Why units were refused: floodmark quarantine show {name}. Put a whole file in the place of an unreadable one, or take it out of the folder."
    if _REFUSED["replaced"] in kinds:
        fix += " Land what is new of a changed file under a new name, then take the changed file out of the folder."
    if kinds & {WRITING, _UNFINISHED}:
        fix += " A file that nobody writes any more: rename it, or take it out of the folder."
    return LifecycleError(
        f"source '{name}'",
        "nothing left to land before its end of input",
        _named(holding),
        f"{fix} Once the source is complete: floodmark land {name} --end",
        code="LIFECYCLE-185",
    )


def _named(holding: Mapping[str, Waiting]) -> str:
    """Units by the kind of reason, the first of each kind with details."""
    kinds: dict[str, list[str]] = {}
    for name, waiting in sorted(holding.items()):
        kinds.setdefault(waiting.why, []).append(f"{name} ({waiting.detail})" if waiting.detail else name)
    parts = (
        f"{len(units):,} {why}: {', '.join(units[:_NAMED])}{', ...' * (len(units) > _NAMED)}"
        for why, units in kinds.items()
    )
    return "; ".join(parts)
