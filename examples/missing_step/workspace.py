"""A step that does not come: orders that are not paid in time, and visits that a log-in opens and a log-out or a time-out ends."""

from __future__ import annotations

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
)


class Step(Contract):
    """A step of an order."""

    at: EventTime
    order_id: str
    step: str


class Action(Contract):
    """What a user did."""

    at: EventTime
    user: str
    what: str


inbox = Files("inbox", format="json", min_age="0 s")
steps = Source("steps", contract=Step, connector=inbox, watermark=BoundedOutOfOrderness("10 minutes"))
actions = Source(
    "actions",
    contract=Action,
    connector=Files("actions", format="json", min_age="0 s"),
    watermark=BoundedOutOfOrderness("10 minutes"),
)


@operator
def unpaid(steps: Stream[Step]) -> Stream:
    """Orders without a payment within an hour, an hour after the order."""
    missing = begin("ordered").where("step = 'ordered'").not_followed_by("paid").where("step = 'paid'").within("1 hour")
    return steps.key_by("order_id").pattern(missing).select(ordered_at="ordered.at")


@operator
def visits(actions: Stream[Action]) -> Stream:
    """Windows of a user that a log-in opens, and a log-out, the next log-in or thirty minutes end."""
    return actions.match_recognize(
        partition_by="user",
        pattern="LOGIN INSIDE* LOGOUT?",
        define={
            "LOGIN": "what = 'login'",
            "INSIDE": "what NOT IN ('login', 'logout')",
            "LOGOUT": "what = 'logout'",
        },
        measures={
            "since": "LOGIN.at",
            "until": "LAST(at)",
            "actions": "COUNT(*)",
            "logged_out": "COUNT(LOGOUT) = 1",
        },
        within="30 minutes",
    )


def workspace(environment: str = "dev") -> Workspace:
    """Two sources, two operators."""
    engine = "embedded" if environment == "dev" else "spark"
    return Workspace(sources=[steps, actions], operators=[unpaid, visits], settings=Settings(engine=engine))
