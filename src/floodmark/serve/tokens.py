"""Tokens: who may ask. They are named by reference to a secret, which is read again, so that a token is changed or withdrawn while the service runs."""

from __future__ import annotations

import hmac
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from floodmark.core.errors import LifecycleError, SetupError
from floodmark.core.time import describe, parse_instant
from floodmark.serve.refusals import Unauthorized
from floodmark.spec.values.secret import Env, Secret, SecretFile, described, read

LOCAL = frozenset({"127.0.0.1", "::1", "localhost"})
"""Addresses that only this machine reaches."""
_READ_SECONDS = 1.0
"""Seconds for which a secret that was read is used."""
_SHORTEST = 16
"""Fewest characters of a token."""


@dataclass(slots=True)
class Tokens:
    """The tokens of a service. Each secret holds one in a line, and behind the token the instant up to which it is valid, if there is one.

    Args:
        secrets: where the tokens are; none for a service that answers everybody on this machine.
    """

    secrets: Sequence[Secret]
    _read: tuple[float, tuple[tuple[bytes, int | None], ...]] = field(default=(float("-inf"), ()), init=False)

    def check(self, header: str | None, now: int) -> None:
        """Refuse a question without a valid token.

        Args:
            header: ``Bearer TOKEN``.
            now: the clock, ms UTC.

        Raises:
            Unauthorized: SERVE-005 no such token, SERVE-006 its time is over.
        """
        if not self.secrets:
            return
        scheme, _, token = (header or "").partition(" ")
        bearer = token.strip().encode() if scheme.lower() == "bearer" else b""
        matched, until = False, None
        for known, expires in self._known():  # all of them: the time does not tell which
            if hmac.compare_digest(known, bearer):
                matched, until = True, expires
        if not matched:
            got = "another one" if bearer else "none"
            fix = "Send a valid one: Authorization: Bearer TOKEN."
            raise Unauthorized("Authorization", "a token of this service", got, fix, code="SERVE-005")
        if until is not None and until <= now:
            fix = "Ask the operators of the service for a new one."
            got = f"one that was valid up to {describe(until)}"
            raise Unauthorized("Authorization", "a token that is valid", got, fix, code="SERVE-006")

    def check_host(self, header: str) -> None:
        """Refuse a name that another site has made to lead here, where no token is asked for: a browser would show that site the answers.

        Args:
            header: ``Host`` of the question.

        Raises:
            Unauthorized: SERVE-031.
        """
        host = header.rpartition(":")[0] if header.rpartition(":")[2].isdigit() else header
        if not self.secrets and host.strip("[]").lower() not in LOCAL:
            fix = f"Ask by one of these names: {', '.join(sorted(LOCAL))}; or name a token: floodmark serve --token env:NAME"
            raise Unauthorized("Host", "a name of this machine's loopback", host[:200], fix, code="SERVE-031")

    def prepare(self, host: str) -> None:
        """Refuse to listen where others reach the service, unless there is a token; and a secret without one.

        Raises:
            SetupError: SETUP-140 no token is named, SETUP-141 a secret is missing or holds no token.
        """
        if not self.secrets and host not in LOCAL:
            fix = f"Name where a token is: floodmark serve --host {host} --token file:/run/secrets/floodmark_token"
            raise SetupError(f"serve at {host}", "a token beyond this machine", "none", fix, code="SETUP-140")
        for secret in self.secrets:
            if not list(parsed(read(secret))):
                expected = (
                    f"a token of at least {_SHORTEST} characters in each line, and behind it up to when it is valid"
                )
                fix = "For example: openssl rand -hex 32 > /run/secrets/floodmark_token"
                raise SetupError(f"token, {described(secret)}", expected, "none", fix, code="SETUP-141")

    def _known(self) -> tuple[tuple[bytes, int | None], ...]:
        at, known = self._read
        if time.monotonic() - at > _READ_SECONDS:
            known = tuple(token for secret in self.secrets for token in parsed(read(secret)))
            self._read = time.monotonic(), known
        return known


def parsed(content: str) -> list[tuple[bytes, int | None]]:
    """(token, end of its validity in ms UTC or None) of each line that holds one; a line that cannot be read holds none."""
    tokens = []
    for line in content.splitlines():
        token, _, until = line.strip().partition(" ")
        if len(token) < _SHORTEST:
            continue
        try:
            tokens.append((token.encode(), parse_instant(until.strip(), "token") if until.strip() else None))
        except LifecycleError:  # no instant: better no token than one for ever
            continue
    return tokens


def secret_of(text: str) -> Secret:
    """(``env:NAME`` or ``file:/path``) -> the secret there.

    Raises:
        SetupError: SETUP-142, another text.
    """
    kind, _, name = text.partition(":")
    if kind == "env" and name:
        return Env(name)
    if kind == "file" and name:
        return SecretFile(name)
    fix = "For example --token env:FLOODMARK_TOKEN, or --token file:/run/secrets/floodmark_token."
    raise SetupError("--token", "where a token is", "something else", fix, code="SETUP-142")
