"""Webhooks: a request per change, sent again with the same key until it is received."""

from __future__ import annotations

import http.client
import re
from dataclasses import dataclass, field
from typing import ClassVar
from urllib.parse import urlsplit

from floodmark.core import crash
from floodmark.core.errors import ConnectorError
from floodmark.core.time import span
from floodmark.deliveries.documents import document
from floodmark.deliveries.sink import Away, Change, Changes, Sink
from floodmark.lake.stream.delivered import Delivered
from floodmark.spec.assets.delivery import Route
from floodmark.spec.assets.to_webhook import ToWebhook
from floodmark.spec.values import secret
from floodmark.spec.values.secret import Env, Secret, SecretFile

_RECEIVED = range(200, 300)
_LATER = frozenset({408, 409, 423, 425, 429}) | frozenset(range(500, 600))
"""Answers after which the same request is sent again."""
_UNAUTHORIZED = frozenset({401, 403})
_REPLY_BYTES = 2_000
"""Most bytes of an answer that are read."""
_PATH = re.compile(r"[!-~]*")
"""What HTTP takes as the path of a URL."""


@dataclass(slots=True)
class WebhookSink(Sink):
    """A program that is called.

    Args:
        settings: of the delivery.
        route: the delivery.
    """

    commit_by_commit: ClassVar[bool] = True

    settings: ToWebhook
    route: Route
    _connection: http.client.HTTPConnection | None = field(default=None, init=False)
    _path: str = field(default="/", init=False)
    _headers: dict[str, str] = field(default_factory=dict, init=False)
    _sending: Delivered | None = field(default=None, init=False)
    """Position behind the changes that are being sent."""
    _received: set[str] = field(default_factory=set, init=False)
    """Keys of those that were received."""

    def prepare(self) -> None:
        """Read the secrets; the first request connects.

        Raises:
            ConnectorError: DELIVERY-003, a URL or a header that HTTP does not carry.
        """
        self.close()
        url = urlsplit(self._text(self.settings.url))
        if url.scheme not in {"http", "https"} or not url.hostname:
            fix = "Correct the variable that holds it."
            raise ConnectorError(self._where, "a URL of http or https", "another one", fix, code="DELIVERY-003")
        if not _PATH.fullmatch(f"{url.path}{url.query}"):
            fix = "Write them as percent signs and hexadecimal digits, such as %20 for a space."
            got = "one with spaces or letters beyond ASCII"
            raise ConnectorError(self._where, "a URL as it is sent", got, fix, code="DELIVERY-003")
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(url.hostname, url.port, timeout=span(self.settings.timeout) / 1000)
        self._path = f"{url.path or '/'}{f'?{url.query}' if url.query else ''}"
        own = {name: self._text(value) for name, value in self.settings.headers.items()}
        for name, value in own.items():
            if not _is_header(name, value):
                fix = "Write the name in ASCII and the value in one line of Latin-1, or send what it says in the URL."
                got = "letters or line ends that no header has"
                raise ConnectorError(f"{self._where}, header {name}", "a header", got, fix, code="DELIVERY-003")
        self._headers = {"Content-Type": "application/json", **own}

    def deliver(self, changes: Changes, number: int) -> None:
        """Send each change, but for those that were received in an earlier call that was cut short: a receiver may take so many a minute."""
        if self._sending != changes.position:
            self._sending, self._received = changes.position, set()
        if changes.whole and changes.before is not None:
            about = {"change": "replace", "commit": changes.position.version}
            self._send_once(about, f"{changes.position.table}-{number}")
        for batch in changes.batches:
            for change in batch:
                self._send_once(self._document(change), f"{changes.position.table}-{change.at}-{change.key}")
            crash.point("delivery.after_batch")

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def _document(self, change: Change) -> dict[str, object]:
        kind = "delete" if change.row is None else "upsert"
        return {"commit": change.at, "change": kind, "key": dict(change.values), "row": change.row}

    def _send_once(self, body: dict[str, object], key: str) -> None:
        if key not in self._received:
            self._send(body, key)
            self._received.add(key)

    def _send(self, body: dict[str, object], key: str) -> None:
        """One request.

        Raises:
            Away: no answer, or one that says: later.
            ConnectorError: DELIVERY-008, the receiver refuses it.
        """
        about = {"delivery": self.route.name, "output": self.route.output.table}
        headers = {**self._headers, "Idempotency-Key": key}
        try:
            status, reply = self._answer(document({**about, **body}).encode(), headers)
        except (OSError, http.client.HTTPException) as error:
            fix = "It goes on once the receiver answers."
            got = (
                f"none within {self.settings.timeout}"
                if isinstance(error, TimeoutError)
                else f"{type(error).__name__}: {error}"
            )
            raise Away(self._where, "an answer of the receiver", got, fix, code="DELIVERY-001") from error
        if status in _LATER:
            fix = "It goes on once the receiver takes it."
            raise Away(self._where, "a receiver that takes it", f"answer {status}", fix, code="DELIVERY-001")
        if status in _UNAUTHORIZED and (secrets := [*map(secret.described, self._secrets)]):
            where, got = f"{self._where}, {', '.join(secrets)}", f"answer {status}: {_shown(reply)}"
            if any(isinstance(held, SecretFile) for held in self._secrets):  # the next try reads the file again
                fix = "Write a new token into the file: the delivery reads it again, and goes on."
                raise Away(where, "a token that the receiver takes", got, fix, code="DELIVERY-001")
            fix = f"Set a new token where floodmark runs, and restart the delivery: floodmark restart {self.route.name}"
            raise ConnectorError(where, "a token that the receiver takes", got, fix, code="DELIVERY-010")
        if status not in _RECEIVED:
            fix = f"Mend the receiver, or the delivery's headers, and restart the delivery: floodmark restart {self.route.name}"
            got = f"{status}: {_shown(reply)}"
            raise ConnectorError(self._where, f"an answer of 2xx to {key}", got, fix, code="DELIVERY-008")

    def _answer(self, content: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Status and beginning of the answer to a request. A connection that the receiver has closed behind an earlier answer, as it may, is made anew."""
        assert self._connection is not None
        is_used = self._connection.sock is not None
        try:
            return self._asked(self._connection, content, headers)
        except (ConnectionResetError, BrokenPipeError):
            if not is_used:
                raise
            self._connection.close()
            return self._asked(self._connection, content, headers)

    def _asked(
        self, connection: http.client.HTTPConnection, content: bytes, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        connection.request("POST", self._path, content, headers)
        answer = connection.getresponse()
        reply = answer.read(_REPLY_BYTES)
        if not answer.isclosed():
            connection.close()  # the next answer would be read behind a part of this one
        return answer.status, reply

    @property
    def _where(self) -> str:
        return f"delivery '{self.route.name}'"

    @property
    def _secrets(self) -> list[Secret]:
        """The references among the headers."""
        return [value for value in self.settings.headers.values() if isinstance(value, Env | SecretFile)]

    def _text(self, value: str | Secret) -> str:
        if isinstance(value, str):
            return value
        return secret.needed(value, where=self._where, name="of the webhook", setting="ToWebhook(...)")


def _is_header(name: str, value: str) -> bool:
    """Whether HTTP carries a header."""
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return re.fullmatch(r"[!-9;-~]+", name) is not None and not {"\r", "\n"} & {*value}


def _shown(reply: bytes) -> str:
    """The beginning of an answer, for people."""
    return reply[:200].decode("utf-8", "replace")
