"""Checks of a whole pattern: names, an end, and a bound on the partial matches that a key may have."""

from __future__ import annotations

from floodmark.core.errors import DefinitionError, closest
from floodmark.spec.patterns.pattern import Pattern, Stage
from floodmark.spec.patterns.skip import Skip

MOST_STATES = 10_000
"""Rows that a pattern has states for at most: each start, on each worker, makes them anew."""
MOST = 100_000
"""Partial matches of one key at most, unless the pattern says another number."""


def check_pattern(pattern: Pattern, skip: Skip, most: int | None, where: str) -> int:
    """Refuse a pattern that cannot end, or whose partial matches have no bound; the greatest number of partial matches of a key.

    Raises:
        DefinitionError: DEFINITION-421 time since a row before the first one, 422 the skip strategy names no stage, 424 a name twice,
            425 no end, 426 no bound, 427 more than ``MOST_STATES`` rows.
    """
    names = [stage.name for stage in pattern.walk() if stage.group is None]
    if twice := next((name for name in names if names.count(name) > 1), None):
        fix = "Give each stage a name of its own, also in groups."
        raise DefinitionError(where, "different names of stages", f"'{twice}' twice", fix, code="DEFINITION-424")
    if skip.stage and skip.stage not in pattern.names:
        fix = closest(skip.stage, pattern.names) + f"Stages: {', '.join(pattern.names)}."
        expected = f"a stage of the pattern in {skip.strategy}(...)"
        raise DefinitionError(where, expected, repr(skip.stage), fix, code="DEFINITION-422")
    if pattern.size > MOST_STATES:
        fix = 'Take smaller numbers, or count in the condition of the next stage: one_or_more().next("b").where("count(a) >= 5000").'
        got = f"one of {pattern.size:,}: numbers of rows, multiplied by those of their groups"
        raise DefinitionError(where, f"a pattern of {MOST_STATES:,} rows or fewer", got, fix, code="DEFINITION-427")
    first = pattern.stages[0]
    if first.gap is not None and first.group is None and first.most == 1 and not first.optional:
        fix = 'Leave it out: it has no effect there. Write within(..., "previous") behind the stage whose row must come soon, or within("10 minutes") for the whole match.'
        expected = 'within(..., "previous") behind a stage that has a row before it'
        raise DefinitionError(where, expected, f"one behind '{first.name}', the first row", fix, code="DEFINITION-421")
    _check_end(pattern, where)
    if most is None and (why := _unbounded(pattern)):
        fix = 'End partial matches, .within("10 minutes"); or name how many a key may have before the run stops, most=10_000.'
        raise DefinitionError(where, "a bound on partial matches", why, fix, code="DEFINITION-426")
    return MOST if most is None else check_most(most, where)


def check_most(most: object, where: str) -> int:
    """The greatest number of partial matches, if it is one.

    Raises:
        DefinitionError: DEFINITION-426.
    """
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        fix = f"most=10_000; without it a key has at most {MOST:,}."
        raise DefinitionError(where, "a number of partial matches, 1 or more", repr(most), fix, code="DEFINITION-426")
    return most


def _check_end(pattern: Pattern, where: str) -> None:
    last = pattern.last
    if last.contiguity == "not_followed_by" and last.gap is None and pattern.length is None:
        fix = 'Say how long the row must not come, .within("1 hour"); or add a stage behind it.'
        got = f"not_followed_by('{last.name}') at the end, without within"
        raise DefinitionError(where, "a pattern that can end", got, fix, code="DEFINITION-425")
    for stage in pattern.walk():
        inner = stage.group
        if inner is not None and inner.last.contiguity == "not_followed_by":
            fix = "Move it behind the group, or add a stage behind it in the group."
            got = f"not_followed_by('{inner.last.name}') at the end of a group"
            raise DefinitionError(where, "a group that can end", got, fix, code="DEFINITION-425")


def _unbounded(pattern: Pattern) -> str:
    """Why the partial matches of a key have no bound, in words; empty if they have one."""
    for stage in pattern.walk():
        if stage.loops and stage.repetition == "combinations":
            what = f"stage '{stage.name}'" if stage.name else "a group"
            return f"any combination of the rows of {what}: 20 fitting rows make 1,048,575 partial matches"
    if pattern.length is not None:
        return ""
    waiting = next((stage for position, stage in enumerate(pattern.stages) if not _ends_soon(stage, position)), None)
    if waiting is None:
        return ""
    what = f"'{waiting.name}'" if waiting.name else "a group"
    return f"partial matches that wait for {what} for ever: a million rows that fit the first stage leave a million of them"


def _ends_soon(stage: Stage, position: int) -> bool:
    """Whether a row, or the time since the previous one, decides each partial match that waits in a stage."""
    strict = position == 0 or stage.contiguity in {"next", "not_next"}
    repeats = stage.most is not None and (stage.most == 1 or stage.repetition == "consecutive")
    inner = stage.group is None or all(_ends_soon(part, place) for place, part in enumerate(stage.group.stages))
    timed = stage.gap is not None and stage.most is not None
    return ((strict and repeats) or timed) and inner
