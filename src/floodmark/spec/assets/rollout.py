"""Declarations of promotion rules and scheduled rollouts: when a new version of a stream replaces the running one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import lt
from typing import Any

from floodmark.core.errors import DefinitionError, LifecycleError, closest
from floodmark.core.time import parse_instant, span, zone
from floodmark.core.types import parse as parse_type
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.cron import check_cron
from floodmark.spec.values.share import EXPECTED, parse_share
from floodmark.spec.values.tolerance import Within

_WHERE = "promotion rule"
_EXAMPLE = 'For example PromoteWhen(match=0.999, columns={"mean_delay": Within(0.5)}, lag="30 s", soak="2 hours", approve=True).'
_OPTION = re.compile(r"(?P<name>match|rows|lag|soak|at|every|cutover)\s*(?P<sign>>=|<=|=)\s*(?P<value>.+)")
_MEAN = re.compile(r"mean\s+(?P<name>\w+)\s*<=\s*(?P<share>.+)")
_COLUMN = re.compile(r"(?P<name>\w+)\s+within\s+(?P<bound>\S+)")
_SIGNS = {"match": ">=", "rows": ">=", "lag": "<=", "soak": ">=", "at": ">=", "every": "=", "cutover": "="}


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoteWhen:
    """Conditions for promoting an arm of an experiment to the stream. Each condition is a guardrail; all guardrails must hold.

    Args:
        match: least share of rows that are the same as the first arm's, of each output, 0 to 1; 0: any.
        columns: column -> by how much its values may differ and count as the same; the share of such pairs must be ``match`` or more.
        means: column -> the mean of the arm's values is at most so many times that of the first arm's, as in ``{"error": 0.95}``: the arm errs
            less. Of numbers of 0 or more.
        rows: least number of rows compared.
        lag: most event time the arm may be behind the foremost of the stream and all arms; ``""``: any.
        soak: time for which all other guardrails must have held at every evaluation without a break.
        at: earliest time of the promotion, ISO 8601; ``""``: any.
        every: time between two evaluations.
        approve: whether a person must approve once all guardrails hold.
        cutover: the event time from which results are the new version's: ``"closed"``: the event time up to which results are final at the
            promotion; or an instant, ISO 8601. ``""``: all results since the experiment began.

    Raises:
        DefinitionError: DEFINITION-161, a value outside its range; DEFINITION-001, no span of time; DEFINITION-160, no tolerance.
    """

    match: float = 1.0
    columns: Mapping[str, Within] = field(default_factory=dict)
    rows: int = 1
    lag: str = ""
    soak: str = "0 s"
    at: str = ""
    every: str = "1 minute"
    approve: bool = False
    cutover: str = ""
    means: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check every value."""
        self._check_values()
        for name in ("lag", "soak", "every"):
            text = getattr(self, name)
            if name == "lag" and text == "":
                continue
            least = 1 if name == "every" else 0
            if span(text, f"{_WHERE}, {name}") < least:
                raise _wrong(name, f"a span of {least} ms or more", text, 'For example "30 seconds".')
        for name, text in (("at", self.at), ("cutover", self.cutover if self.cutover != "closed" else "")):
            if text:
                try:
                    parse_instant(text, f"{_WHERE}, {name}")
                except LifecycleError as error:
                    raise _wrong(name, error.expected, text, error.fix) from None

    def _check_values(self) -> None:
        if not _number(self.match) or not 0 <= self.match <= 1:
            raise _wrong("match", EXPECTED, self.match, "99.9% is 0.999.")
        if not _number(self.rows) or self.rows != int(self.rows) or self.rows < 1:
            raise _wrong("rows", "a whole number of 1 or more", self.rows, "1 is the default.")
        if not isinstance(self.approve, bool):
            raise _wrong("approve", "True or False", self.approve, _EXAMPLE)
        bounds = self.columns.values() if isinstance(self.columns, Mapping) else [self.columns]
        if not all(isinstance(bound, Within) for bound in bounds):
            raise _wrong("columns", "column -> Within(...)", self.columns, _EXAMPLE)
        ratios = self.means.values() if isinstance(self.means, Mapping) else [math.nan]
        if not all(_number(ratio) and ratio > 0 for ratio in ratios):
            raise _wrong("means", "column -> number above 0", self.means, 'means={"error": 0.95}: five per cent less.')

    @property
    def lag_ms(self) -> int | None:
        """``lag`` in ms; None for any."""
        return span(self.lag) if self.lag else None

    @property
    def soak_ms(self) -> int:
        """``soak`` in ms."""
        return span(self.soak)

    @property
    def at_ms(self) -> int | None:
        """``at`` in ms UTC; None for any."""
        return parse_instant(self.at, _WHERE) if self.at else None

    @property
    def every_ms(self) -> int:
        """``every`` in ms."""
        return span(self.every)

    @staticmethod
    def parse(texts: Iterable[str]) -> PromoteWhen:
        """A rule from conditions as on the command line: ``match>=99.9%``, ``mean_delay within 0.5``, ``mean error<=95%``, ``rows>=1000``, ``lag<=30 s``, ``soak>=2 hours``, ``at>=TIME``, ``every=1 minute``, ``cutover=closed``, ``approve``.

        Raises:
            DefinitionError: DEFINITION-161, none of these.
        """
        options, columns, means = dict[str, Any](), dict[str, Within](), dict[str, Any]()
        for text in texts:
            if text.strip() == "approve":
                options["approve"] = True
            elif match := _COLUMN.fullmatch(text.strip()):
                columns[match["name"]] = Within.parse(match["bound"], f"{_WHERE}, {match['name']}")
            elif match := _MEAN.fullmatch(text.strip()):
                means[match["name"]] = _ratio(match["share"].strip())
            elif (match := _OPTION.fullmatch(text.strip())) and match["sign"] in {_SIGNS[match["name"]], "="}:
                options[match["name"]] = _value(match["name"], match["value"].strip())
            else:
                fix = f"One of: {', '.join(f'{name}{sign}...' for name, sign in _SIGNS.items())}, 'COLUMN within N', 'mean COLUMN<=N%', approve."
                raise DefinitionError(_WHERE, "a condition", repr(text), fix, code="DEFINITION-161")
        return PromoteWhen(**options, columns=columns, means=means)

    def check(self, operator: Operator) -> None:
        """Make sure that an operator has the columns of the rule, and that they are numbers.

        Raises:
            DefinitionError: DEFINITION-162.
        """
        types = {name: kind for output in operator.outputs for name, kind in output.schema.types.items()}
        where = f"{_WHERE} of operator '{operator.name}'"
        for name in (*self.columns, *self.means):
            if name not in types:
                fix = f"{closest(name, types)}It has: {', '.join(types)}."
                raise DefinitionError(where, "a column of its outputs", f"'{name}'", fix, code="DEFINITION-162")
            if not parse_type(types[name]).is_numeric:
                fix = "Give tolerances and means to numbers only; other columns count in match."
                got = f"'{name}', which is {types[name]}"
                raise DefinitionError(where, "a column of numbers", got, fix, code="DEFINITION-162")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """How a changed version replaces its stream: the version runs beside the stream, is compared with it, and is promoted when a rule holds.

    Args:
        schedule: cron expression: ``"0 3 * * sun"``; ``""``: only a person starts a rollout.
        timezone: of ``schedule``.
        shadow: time for which the new version runs beside the stream before the rule is evaluated.
        ramp: shares of the keys over which the new version runs first, in ascending order and below 1, so that a wrong version is found at
            the cost of a few keys. The next share begins when all guardrails but approval hold after ``shadow``; the last one is all keys. Needs
            an operator with a key, and a change that leaves the key as it is.
        promote: the rule.
        watch: time for which the new version is watched after its promotion; if it fails, the old version is restored.
        catch_up: time for which the new version may be further behind its input than ``promote.lag`` while it is watched.
        patience: time after ``shadow`` within which waiting guardrails must hold, else the rollout is stopped. Approval may take longer.
        forward_only: accept that open windows hold rows that only the old definition admits.
        rebuild: a version that cannot resume from the stream's state, as with another window, or only with ``forward_only``, which is not
            given, computes all input from the first row.

    Raises:
        DefinitionError: DEFINITION-098 no cron expression, DEFINITION-001 no span of time, DEFINITION-002 no time zone, DEFINITION-161
            a value outside its range.
    """

    schedule: str = ""
    timezone: str = "UTC"
    shadow: str = "1 hour"
    ramp: tuple[float, ...] = ()
    promote: PromoteWhen = field(default_factory=PromoteWhen)
    watch: str = "1 day"
    catch_up: str = "15 minutes"
    patience: str = "1 day"
    forward_only: bool = False
    rebuild: bool = True

    def __post_init__(self) -> None:
        if self.schedule != "":
            check_cron(self.schedule, "rollout, schedule", 'Rollout(schedule="0 3 * * sun")')
        zone(self.timezone, "rollout, timezone")
        for name in ("shadow", "watch", "catch_up", "patience"):
            if span(getattr(self, name), f"rollout, {name}") < 0:
                fix = 'For example "2 hours".'
                got = repr(getattr(self, name))
                raise DefinitionError(f"rollout, {name}", "a span of 0 or more", got, fix, code="DEFINITION-161")
        shares = [0.0, *self.ramp, 1.0] if isinstance(self.ramp, (tuple, list)) else [1.0]
        if not all(map(_number, shares)) or not all(map(lt, shares, shares[1:])) or len(shares) == 1:
            fix = "For example ramp=(0.02, 0.1): first over 2 % of the keys, then over 10 %, then over all."
            expected = "shares between 0 and 1, each above the one before"
            raise DefinitionError("rollout, ramp", expected, repr(self.ramp), fix, code="DEFINITION-161")
        if not isinstance(self.promote, PromoteWhen):
            got = repr(self.promote)
            raise DefinitionError("rollout, promote", "a PromoteWhen", got, _EXAMPLE, code="DEFINITION-161")

    @property
    def catch_up_ms(self) -> int:
        """``catch_up`` in ms."""
        return span(self.catch_up)


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _wrong(name: str, expected: str, got: object, fix: str) -> DefinitionError:
    return DefinitionError(f"{_WHERE}, {name}", expected, repr(got), fix, code="DEFINITION-161")


def _value(name: str, text: str) -> Any:
    if name == "match":
        share = parse_share(text)
        return text if share is None else share
    return int(text) if name == "rows" and text.isdecimal() else text


def _ratio(text: str) -> Any:
    """A number, or a share in per cent; the text itself if it is neither."""
    number, percent = (text[:-1], 100) if text.endswith("%") else (text, 1)
    try:
        return float(number) / percent
    except ValueError:
        return text
