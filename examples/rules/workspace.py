"""Rules of machines that change while the stream runs: a rule is a pattern with parameters, and counts from its event time on."""

from __future__ import annotations

from pydantic import Field

from floodmark import (
    BoundedOutOfOrderness,
    Contract,
    EventTime,
    Files,
    Settings,
    Source,
    Stream,
    Workspace,
    begin,
    operator,
    skip_past_last_event,
)


class Reading(Contract):
    """A value that a machine measures of itself."""

    at: EventTime
    machine: str
    kind: str
    value: float


class Rule(Contract):
    """An alert is due when a kind of value is above the threshold so many times in a row."""

    at: EventTime
    rule: str
    kind: str
    threshold: float
    times: int = Field(ge=2)
    active: bool


def _source(name: str, contract: type[Contract], idle_timeout: str | None = None) -> Source:
    return Source(
        name,
        contract=contract,
        connector=Files(name, format="json", min_age="0 s"),
        watermark=BoundedOutOfOrderness("10 minutes"),
        idle_timeout=idle_timeout,
        when_idle="clock" if idle_timeout else "wait",
    )


readings, rules = _source("readings", Reading), _source("rules", Rule, idle_timeout="10 seconds")


@operator
def faults(readings: Stream[Reading], rules: Stream[Rule]) -> Stream:
    """The alerts of each machine and rule."""
    ruled = readings.key_by("machine").connect(rules.broadcast()).with_rules("rule", deleted="NOT active", uid="rules")
    high = begin("high").where("value > threshold").one_or_more().consecutive()
    enough = high.next("last").where("value > threshold AND count(high) >= times - 1").within("1 hour")
    matches = ruled.filter("kind = rule_kind").key_by("machine", "rule").pattern(enough, skip=skip_past_last_event())
    return matches.select(since="first(high.at)", until="last.at", value="last.value", threshold="last.threshold")


def workspace(environment: str = "dev") -> Workspace:
    """Two sources, one operator."""
    engine = "embedded" if environment == "dev" else "spark"
    return Workspace(sources=[readings, rules], operators=[faults], settings=Settings(engine=engine))
