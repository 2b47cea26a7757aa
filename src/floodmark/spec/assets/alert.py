"""Alerts: who is told when the health of a supervised stream changes. Frozen values; a supervisor sends them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from floodmark.core.errors import DefinitionError, closest, shown
from floodmark.core.time import describe_span, span
from floodmark.spec.values.secret import Env, Secret

Level = Literal["ok", "warning", "error"]
"""How bad the health of a stream is."""
LEVELS: tuple[Level, ...] = get_args(Level)
_SHORTEST, _LONGEST = 1_000, 300_000
"""Of a deadline, ms."""
_MOST_TRIES = 100


Text = str | Env


@dataclass(frozen=True, slots=True)
class Webhook:
    """A POST of the change as JSON. Any answer of 2xx counts as received.

    Args:
        url: ``http`` or ``https``; ``Env("SLACK_URL")`` where the URL is a secret.
        headers: name -> value; ``Env`` for those that are secrets.

    Raises:
        DefinitionError: DEFINITION-298, another URL, or a password or token that is written out.
    """

    url: Text
    headers: Mapping[str, Text] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse secrets that are written out."""
        check_request(self.url, self.headers)


def check_request(url: str | Secret, headers: Mapping[str, str | Secret]) -> None:
    """Check the address and the headers of a request.

    Raises:
        DefinitionError: DEFINITION-298, another URL, or a password or token that is written out.
    """
    if isinstance(url, str) and not re.match(r"https?://[^/@\s]+(/|$)", url):
        fix = 'For example Webhook("https://hooks.example.com/floodmark"), or Webhook(Env("HOOK_URL")) where it holds a secret.'
        expected = "a URL of http or https, without user and password"
        raise DefinitionError("Webhook, url", expected, "another one", fix, code="DEFINITION-298")
    for name, value in headers.items():
        if isinstance(value, str) and re.search("auth|token|secret|key|cookie", name, re.IGNORECASE):
            fix = f'Name the environment variable that holds it: headers={{"{name}": Env("HOOK_TOKEN")}}.'
            where = f"Webhook, header {name}"
            raise DefinitionError(where, "a secret by reference", "one that is written out", fix, code="DEFINITION-298")


@dataclass(frozen=True, slots=True, kw_only=True)
class Email:
    """A message by SMTP.

    Args:
        to: addresses.
        sender: address of the sender.
        server: ``host`` or ``host:port``.
        security: ``"starttls"``, ``"tls"``, or ``"none"`` for a relay on this machine.
        user: name at the server; None: without a login.
        password: by reference.

    Raises:
        DefinitionError: DEFINITION-298, no address, another security, or a password that is written out.
    """

    to: tuple[str, ...] | str
    sender: str
    server: str = "localhost:25"
    security: Literal["none", "starttls", "tls"] = "none"
    user: Text | None = None
    password: Env | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be sent, and a password that is written out."""
        addresses = (self.to,) if isinstance(self.to, str) else tuple(self.to)
        object.__setattr__(self, "to", addresses)
        wrong = {
            "addresses": not addresses or any("@" not in one or "\n" in one for one in (*addresses, self.sender)),
            'security "none", "starttls" or "tls"': self.security not in {"none", "starttls", "tls"},
            "a password by reference": self.password is not None and not isinstance(self.password, Env),
        }
        for expected in (expected for expected, is_wrong in wrong.items() if is_wrong):
            fix = 'For example Email(to="team@example.com", sender="floodmark@example.com", server="mail:587", security="starttls", user="floodmark", password=Env("MAIL_PASSWORD")).'
            raise DefinitionError("Email", expected, "something else", fix, code="DEFINITION-298")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the health of a stream, or of whether an asset partition meets an expectation, as an alert tells it.

    Args:
        key: the same at every try: a receiver that knows the key has the alert already.
        stream: name of the operator or source.
        lake: root of the lake.
        environment: name of the environment.
        level: ``ok``, ``warning`` or ``error``, after the change.
        condition: what the stream does: ``running``, ``crashed``, ``failed`` ...; of an expectation ``met`` or ``unmet``.
        reason: why.
        mend: what a person can do; empty if there is nothing to do.
        level_before: the level before the change.
        before: the condition before the change.
        at: time of the change, s since 1970.
        asset: table of an expectation; this and those that follow are empty for a change of health.
        partition: name of the asset partition, ``first...last`` of several that were judged together.
        expectation: name of the expectation.
        sample: some values that do not meet it.
    """

    key: str
    stream: str
    lake: str
    environment: str
    level: Level
    condition: str
    reason: str
    mend: str
    level_before: Level
    before: str
    at: float
    asset: str = ""
    partition: str = ""
    expectation: str = ""
    sample: str = ""

    def __str__(self) -> str:
        """One line for people."""
        text = f"{self.stream}: {self.condition}" + (f": {self.reason}" if self.reason else "")
        return text + (f". Mend it: {self.mend}" if self.mend else "")


Hook = Callable[[Change], Any]


@dataclass(frozen=True, slots=True)
class Alert:
    """Who is told when the health of a supervised stream changes, or whether its output meets an expectation, once per change.

    Each message is sent by a process of its own, which is killed after ``deadline``: a hook that hangs or raises holds up neither streams nor other alerts.
    A message that was not received is sent again, with the same key, after 10 seconds, and after twice as long each time, up to an hour.

    Args:
        to: ``Webhook``, ``Email``, or a function of a ``Change``, which runs from the package of the stream.
        on: ``"error"``: a stream is at fault, a blocking expectation is not met, or no longer so. ``"warning"``: also a stream that lags while it catches up, or
            whose input was stopped, and other expectations.
        streams: names of operators and sources; empty: all.
        deadline: longest time of one try.
        tries: most tries of one message.

    Raises:
        DefinitionError: DEFINITION-299, no receiver, another ``on``, deadline or number of tries; DEFINITION-001, no duration.
    """

    to: Webhook | Email | Hook
    on: Literal["error", "warning"] = "error"
    streams: tuple[str, ...] = ()
    deadline: str = "10 seconds"
    tries: int = 10

    def __post_init__(self) -> None:
        """Refuse what cannot be sent."""
        object.__setattr__(self, "streams", (self.streams,) if isinstance(self.streams, str) else tuple(self.streams))
        deadline = span(self.deadline, "Alert, deadline")
        whole = isinstance(self.tries, int) and not isinstance(self.tries, bool) and 1 <= self.tries <= _MOST_TRIES
        wrong = {
            "a Webhook, an Email or a function": (
                not isinstance(self.to, Webhook | Email) and not callable(self.to),
                shown(self.to),
            ),
            'on="error" or "warning"': (self.on not in {"error", "warning"}, f"on={self.on!r}"),
            "a deadline of 1 second to 5 minutes": (not _SHORTEST <= deadline <= _LONGEST, describe_span(deadline)),
            f"1 to {_MOST_TRIES} tries": (not whole, f"tries={self.tries!r}"),
        }
        for expected, got in ((expected, got) for expected, (is_wrong, got) in wrong.items() if is_wrong):
            fix = (
                'For example Alert(Webhook("https://hooks.example.com/floodmark"), on="error", deadline="10 seconds").'
            )
            raise DefinitionError("Alert", expected, got, fix, code="DEFINITION-299")

    @property
    def deadline_seconds(self) -> float:
        """Longest time of one try, s."""
        return span(self.deadline) / 1000

    def tells(self, stream: str, before: Level, after: Level) -> bool:
        """True if the alert is about a change of the level of a stream."""
        levels = {before, after}
        return (not self.streams or stream in self.streams) and (
            "error" in levels or (self.on == "warning" and "warning" in levels)
        )


def check_alerts(alerts: Iterable[Any], streams: Iterable[str]) -> tuple[Alert, ...]:
    """The alerts of a workspace.

    Args:
        alerts: as declared.
        streams: names of the workspace's sources and operators.

    Raises:
        DefinitionError: DEFINITION-299, something else, or an unknown stream.
    """
    known = tuple(streams)
    fix = 'For example alerts=[Alert(Webhook("https://hooks.example.com/floodmark"))].'
    if not isinstance(alerts, Iterable):
        raise DefinitionError("Workspace, alerts", "a list of alerts", shown(alerts), fix, code="DEFINITION-299")
    checked = tuple(alerts)
    for alert in checked:
        if not isinstance(alert, Alert):
            raise DefinitionError("Workspace, alerts", "a list of alerts", shown(alert), fix, code="DEFINITION-299")
        for name in alert.streams:
            if name not in known:
                fix = f"{closest(name, known)}There are: {', '.join(known) or 'none'}."
                expected = "names of its sources and operators"
                raise DefinitionError("Alert, streams", expected, repr(name), fix, code="DEFINITION-299")
    return checked
