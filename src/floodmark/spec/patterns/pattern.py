"""The fluent builder of patterns: stages one after the other, with the names and the semantics of Flink's Pattern API."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Literal

from attrs import evolve, field, frozen

from floodmark.core.errors import DefinitionError, shown
from floodmark.core.time import describe_span, span
from floodmark.spec.patterns.conditions import Combined, Condition, Test, condition

Contiguity = Literal["begin", "next", "followed_by", "followed_by_any", "not_next", "not_followed_by"]
Repetition = Literal["relaxed", "consecutive", "combinations"]
NEGATED = ("not_next", "not_followed_by")


@frozen
class Stage:
    """One stage of a pattern: rows that a condition fits, or a group of stages.

    Args:
        name: by which measures and conditions refer to its rows; empty for a group.
        contiguity: which rows may lie between the previous stage and this one.
        condition: of its rows; None for every row.
        group: the stages in its place; None for rows.
        least: number of its rows at least.
        most: number of its rows at most; None for any number.
        counted: whether a quantifier was applied.
        repetition: which rows may lie between two of its rows.
        optional: whether the pattern also matches without it.
        greedy: whether it takes as many rows as it can.
        until: a row that fits ends the repetition.
        gap: greatest distance from the previous row of the match, exclusive, ms; None without one.
    """

    name: str
    contiguity: Contiguity
    condition: Condition | None = None
    group: Pattern | None = None
    least: int = 1
    most: int | None = 1
    counted: bool = False
    repetition: Repetition = "relaxed"
    optional: bool = False
    greedy: bool = False
    until: Condition | None = None
    gap: int | None = None

    @property
    def loops(self) -> bool:
        """Whether the stage takes any number of rows."""
        return self.most is None

    def canonical(self) -> dict[str, Any]:
        """Everything that decides which rows match, as JSON values; settings at their defaults are left out."""
        form: dict[str, Any] = {"name": self.name, "contiguity": self.contiguity}
        form |= {name: part.canonical() for name in ("condition", "group", "until") if (part := getattr(self, name))}
        default = Stage("", "begin")
        for name in ("least", "most", "repetition", "optional", "greedy", "gap"):
            if getattr(self, name) != getattr(default, name):
                form[name] = getattr(self, name)
        return form


@frozen
class Pattern:
    """A pattern over the rows of a key, built stage by stage from ``begin``. Every method returns a new pattern.

    Example: ``begin("small").where("amount < 1").next("large").where("amount > 500").within("10 minutes")``

    ``where``, quantifiers and ``until`` are about the newest stage. Source: Flink ``Pattern``.
    """

    stages: tuple[Stage, ...]
    window: int | None = field(default=None)

    # ---- stages

    def next(self, stage: str | Pattern) -> Pattern:
        """A stage whose row comes directly after the previous stage's, with no row of the key between them."""
        return self._then(stage, "next")

    def followed_by(self, stage: str | Pattern) -> Pattern:
        """A stage whose row is the next one that fits; rows that do not fit may lie between."""
        return self._then(stage, "followed_by")

    def followed_by_any(self, stage: str | Pattern) -> Pattern:
        """A stage whose row is any later one that fits: each of them makes a match of its own."""
        return self._then(stage, "followed_by_any")

    def not_next(self, stage: str) -> Pattern:
        """The row directly after the previous stage's must not fit."""
        return self._then(stage, "not_next")

    def not_followed_by(self, stage: str) -> Pattern:
        """No row that fits may lie between the previous stage's row and the next stage's; at the end of a pattern, before ``within`` is over."""
        return self._then(stage, "not_followed_by")

    # ---- the newest stage

    def where(self, fits: str | Test) -> Pattern:
        """Rows of the newest stage fit this condition, and those it has already.

        Args:
            fits: Spark SQL over the row's columns and over the stages: ``"amount > 10"``, ``"amount > last(small.amount)"``,
                ``"sum(large.amount) + amount < 500"``; or a function of (row, rows matched so far by stage).
        """
        return self._conditioned("and", fits)

    def or_where(self, fits: str | Test) -> Pattern:
        """Rows of the newest stage fit this condition or those it has already."""
        return self._conditioned("or", fits)

    def one_or_more(self) -> Pattern:
        """The newest stage takes one row or more."""
        return self._counted(1, None)

    def times(self, least: int, most: int | None = None) -> Pattern:
        """The newest stage takes that many rows: exactly ``least``, or from ``least`` to ``most``."""
        return self._counted(least, least if most is None else most)

    def times_or_more(self, least: int) -> Pattern:
        """The newest stage takes at least that many rows."""
        return self._counted(least, None)

    def optional(self) -> Pattern:
        """The pattern also matches without the newest stage."""
        self._refuse_negated("optional()")
        return self._changed(optional=True)

    def greedy(self) -> Pattern:
        """The newest stage takes as many rows as it can: a row that fits is taken, and not left to the next stage."""
        self._refuse_negated("greedy()")
        if self.last.group is not None:
            raise self._unfit("greedy() behind one stage", "behind a group", "Make the stages in the group greedy.")
        self._refuse_single("greedy()")
        if self.last.repetition == "combinations":
            raise self._both("greedy()", "allow_combinations()")
        return self._changed(greedy=True)

    def consecutive(self) -> Pattern:
        """No other row of the key may lie between two rows of the newest stage."""
        self._refuse_single("consecutive()")
        if self.last.repetition == "combinations":
            raise self._both("consecutive()", "allow_combinations()")
        return self._changed(repetition="consecutive")

    def allow_combinations(self) -> Pattern:
        """Any of the fitting rows make up the newest stage: a row that fits may also be left out."""
        self._refuse_single("allow_combinations()")
        if self.last.repetition == "consecutive":
            raise self._both("allow_combinations()", "consecutive()")
        if self.last.greedy:
            raise self._both("allow_combinations()", "greedy()")
        return self._changed(repetition="combinations")

    def until(self, fits: str | Test) -> Pattern:
        """A row that fits ends the repetition of the newest stage; it is no row of the stage."""
        if not self.last.loops or self.last.until is not None:
            got = "a second until" if self.last.until is not None else "a stage with a greatest number of rows"
            fix = "Write one_or_more() or times_or_more(n) before until(...), once."
            raise self._unfit("until(...) behind one_or_more() or times_or_more(n)", got, fix)
        return self._changed(until=condition(fits, self._where))

    def within(self, length: str | timedelta, of: Literal["first", "previous"] = "first") -> Pattern:
        """Greatest time from the first row of a match to its last; or, of ``"previous"``, from the previous row to that of the newest stage.

        Args:
            length: exclusive: rows that are ``length`` apart or more do not match. A partial match that is older has timed out.
            of: the row from which time counts.
        """
        milliseconds = span(length, f"{self._where}, within")
        if milliseconds <= 0 or of not in {"first", "previous"}:
            fix = 'within("10 minutes"), or within("10 minutes", "previous").'
            got = f"{describe_span(milliseconds)} of {of!r}"
            raise DefinitionError(self._where, "a positive duration", got, fix, code="DEFINITION-055")
        if of == "previous":
            return self._changed(gap=milliseconds)
        return evolve(self, window=min(milliseconds, self.window or milliseconds))

    # ---- of all stages

    @property
    def last(self) -> Stage:
        """The newest stage."""
        return self.stages[-1]

    def walk(self) -> Iterator[Stage]:
        """All stages, those of groups in place."""
        for stage in self.stages:
            yield stage
            if stage.group is not None:
                yield from stage.group.walk()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stages that take rows: those of ``not_next`` and ``not_followed_by`` are left out."""
        return tuple(stage.name for stage in self.walk() if stage.group is None and stage.contiguity not in NEGATED)

    @property
    def size(self) -> int:
        """Number of rows that the automaton has states for; a stage of any number of rows has one more than its least number."""
        sizes = (1 if stage.group is None else stage.group.size for stage in self.stages)
        return sum(
            size * (stage.least + 1 if stage.most is None else stage.most)
            for stage, size in zip(self.stages, sizes, strict=True)
        )

    @property
    def length(self) -> int | None:
        """The shortest ``within`` of the pattern and of its groups, ms; None without any."""
        windows = [self.window, *(stage.group.length for stage in self.stages if stage.group is not None)]
        return min((window for window in windows if window is not None), default=None)

    def canonical(self) -> dict[str, Any]:
        """Everything that decides which rows match, as JSON values."""
        form: dict[str, Any] = {"stages": [stage.canonical() for stage in self.stages]}
        return form | ({} if self.window is None else {"within": self.window})

    # ---- shared

    def _then(self, stage: object, contiguity: Contiguity) -> Pattern:
        if contiguity in NEGATED and self.last.optional:
            fix = "Write two patterns, one with the optional stage and one without."
            raise self._unfit(f"a stage that is not optional before {contiguity}", f"'{self.last.name}'", fix)
        if contiguity in NEGATED and isinstance(stage, Pattern):
            raise self._unfit(
                f"the name of one stage in {contiguity}", "a pattern", "Name the rows that must not come."
            )
        return evolve(self, stages=(*self.stages, _stage(stage, contiguity, self._where)))

    def _changed(self, **settings: Any) -> Pattern:
        return evolve(self, stages=(*self.stages[:-1], evolve(self.last, **settings)))

    def _conditioned(self, operator: Literal["and", "or"], fits: object) -> Pattern:
        new, old = condition(fits, self._where), self.last.condition
        if self.last.group is not None:
            raise self._unfit(
                "a condition of one stage", "one of a group", "Write where(...) on the stages in the group."
            )
        return self._changed(condition=new if old is None else Combined(operator, old, new))

    def _counted(self, least: int, most: int | None) -> Pattern:
        self._refuse_negated("quantifier")
        if self.last.counted:
            raise self._unfit("one quantifier per stage", "a second one", "Write times(n, m) in their place.")
        numbers = [number for number in (least, most) if number is not None]
        whole = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
        if not whole or least < 0 or (most is not None and not 0 < most >= least) or (least == 0 and most is None):
            fix = "times(2), times(0, 3), times_or_more(1); one_or_more().optional() for any number of rows."
            raise self._unfit("numbers of rows, 1 or more", f"{least!r} to {most!r}", fix)
        optional = self.last.optional or least == 0
        return self._changed(least=max(least, 1), most=most, counted=True, optional=optional)

    def _refuse_negated(self, what: str) -> None:
        if self.last.contiguity in NEGATED:
            fix = "Write it behind a stage that takes rows."
            raise self._unfit(f"no {what} behind {self.last.contiguity}", f"one behind '{self.last.name}'", fix)

    def _refuse_single(self, what: str) -> None:
        if not self.last.counted:
            fix = f"Leave it out: of one row it has no effect. Or write one_or_more(), times(n) or times_or_more(n) before {what}, for several rows."
            raise self._unfit(f"{what} behind a quantifier", "a stage of one row", fix)

    def _both(self, what: str, other: str) -> DefinitionError:
        return self._unfit(f"{what} or {other} behind a stage", "both", "Write one of them.")

    def _unfit(self, expected: str, got: str, fix: str) -> DefinitionError:
        return DefinitionError(self._where, expected, got, fix, code="DEFINITION-421")

    @property
    def _where(self) -> str:
        return f"pattern, stage '{self.last.name}'" if self.last.name else "pattern, group"


def begin(stage: str | Pattern) -> Pattern:
    """The first stage of a pattern, by name; or a group: the stages of another pattern in its place."""
    return Pattern((_stage(stage, "begin", "pattern"),))


def _stage(stage: object, contiguity: Contiguity, where: str) -> Stage:
    if isinstance(stage, Pattern):
        return Stage("", contiguity, group=stage)
    if not isinstance(stage, str) or not stage:
        fix = 'begin("small"), next("large"); a pattern in its place is a group.'
        raise DefinitionError(where, "the name of a stage, or a pattern", shown(stage), fix, code="DEFINITION-421")
    return Stage(stage, contiguity)
