"""Redis: results under keys, which change in one MULTI with the position.

A delivery is one MULTI, whose commands are sent as results are read: the server holds them, and does all or none. The position is watched before, so
that a delivery by another process in between ends this one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from types import ModuleType
from typing import Any, ClassVar

from floodmark.core import crash
from floodmark.core.errors import ConnectorError, LifecycleError, SetupError
from floodmark.core.host import host
from floodmark.deliveries import claims
from floodmark.deliveries.documents import document
from floodmark.deliveries.leftover import Leftover
from floodmark.deliveries.sink import Altered, Away, Change, Changes, Sink
from floodmark.lake.stream.delivered import Delivered
from floodmark.spec.assets.delivery import Route
from floodmark.spec.assets.to_redis import SCHEMES, ToRedis
from floodmark.spec.values import secret

_ANSWER_SECONDS, _END_SECONDS = 10.0, 60.0
"""Longest waits for a connection, and for an answer: that to EXEC comes once all commands are done."""
_TOGETHER = 1_000
"""Commands that are sent before their answers are read."""
_OWN = "_floodmark:"
_OF_RESULT = re.compile(rb"\{|[0-9a-f]{32}\Z")
"""What stands behind the prefix and its colon in the key of a result."""

Command = tuple[str | bytes | int, ...]


@dataclass(slots=True)
class RedisSink(Sink):
    """A server of Redis.

    Args:
        settings: of the delivery.
        route: the delivery.
    """

    remembers: ClassVar[bool] = True

    settings: ToRedis
    route: Route
    _connection: Any = field(default=None, init=False)

    # ---- the sink

    def prepare(self) -> None:
        """Connect; check that the prefix is nobody's, or this delivery's.

        Raises:
            ConnectorError: DELIVERY-003 a cluster, DELIVERY-004 keys that are others'.
        """
        self.close()
        with self._translating():
            self._connection = self._connect()
            self._check_server()
            (owner,) = self._ask(("GET", self._owner))
            if owner is None and next(self._there(), None) is not None:
                raise self._not_own("keys that begin so and that floodmark has not written")
            if owner is not None and owner.decode() != self.route.name and not self._is_left(owner.decode()):
                raise self._not_own(f"those of delivery '{owner.decode()}'")

    def claim(self, lake: str) -> None:
        """Take the prefix, unless another delivery has it.

        Raises:
            ConnectorError: DELIVERY-004, another delivery has it.
        """
        with self._translating():
            self._ask(("WATCH", self._owner))
            (owner,) = self._ask(("GET", self._owner))
            if owner is None or owner.decode() == self.route.name or self._is_left(owner.decode()):
                claimed_by = f"{host()} {lake}"  # of two lakes that deliver under one name, the position is watched
                self._ask(
                    ("MULTI",),
                    ("SET", self._owner, self.route.name),
                    ("SET", self._claimed_by, claimed_by),
                    ("EXEC",),
                )
            self._ask(("UNWATCH",))
            (owner,) = self._ask(("GET", self._owner))
            if owner is None:
                msg = f"{self._where}: {self._owner} was removed"
                raise Altered(msg)
            if owner.decode() != self.route.name:
                raise self._not_own(f"those of delivery '{owner.decode()}'")

    def _is_left(self, owner: str) -> bool:
        """Whether another delivery has claimed the prefix, has delivered nothing there, and is at work no more."""
        position, claimed_by = self._ask(("GET", f"{_OWN}{owner}"), ("GET", self._claimed_by))
        has_delivered = position is not None and json.loads(position)["prefix"] == self._prefix
        if claimed_by is None or has_delivered or next(self._there(), None) is not None:
            return False
        claimed_on, _, lake = claimed_by.decode().partition(" ")
        return claims.is_left(lake, owner, claimed_on)

    def position(self) -> Delivered | None:
        """As the server says; that of another prefix is one without a table."""
        with self._translating():
            (content,) = self._ask(("GET", self._position))
        return None if content is None else self._read(content)

    def deliver(self, changes: Changes, number: int) -> None:
        """Delete and set keys, and move the position, in one MULTI."""
        with self._translating():
            self._ask(("WATCH", self._position))
            (content,) = self._ask(("GET", self._position))
            known = None if content is None else self._read(content)
            if known is not None and known.number >= number:
                self._ask(("UNWATCH",))
                if known == changes.position:
                    return
                raise self._taken_over(known.number, number)
            if known is None and number > 0:  # the server has lost what it had, the position with it
                msg = f"delivery '{self.route.name}': the position is gone"
                raise Altered(msg)
            if (-1 if known is None else known.number) != number - 1:
                raise self._taken_over(-1 if known is None else known.number, number)
            gone = self._leftover() if changes.whole else None
            self._ask(("MULTI",))
            for batch in changes.batches if gone is None else gone.without(changes.batches):
                self._ask(*(self._command(change) for change in batch))
                crash.point("delivery.after_batch")
            for keys in _chunks(() if gone is None else gone.left()):
                self._ask(("DEL", *keys))
            crash.point("delivery.before_position")
            content = json.dumps({"prefix": self._prefix, "position": changes.position.to_json()})
            self._ask(("SET", self._position, content))
            crash.point("delivery.before_commit")
            (done,) = self._ask(("EXEC",))
            if done is None:
                raise self._taken_over(number, number)
        crash.point("delivery.after_commit")

    def close(self) -> None:
        """Close the connection; the server forgets a MULTI that has not ended."""
        if self._connection is not None:
            self._connection.disconnect()
        self._connection = None

    # ---- commands

    def _command(self, change: Change) -> Command:
        key = self._key(change)
        return ("DEL", key) if change.row is None else ("SET", key, document(change.row).encode())

    def _key(self, change: Change) -> bytes:
        """The prefix, and the key of the result as JSON, or the name of a row of final results."""
        values = {name: value + 0.0 if isinstance(value, float) else value for name, value in change.values.items()}
        return f"{self._prefix}:{document(values) if values else change.key}".encode()

    def _ask(self, *commands: Command) -> list[Any]:
        """Send commands at once; returns their answers."""
        connection, answers = self._connection, list[Any]()
        for some in _chunks(commands):
            connection.send_packed_command(connection.pack_commands(some))
            answers += [connection.read_response() for _ in some]
        return answers

    def _there(self) -> Iterator[bytes]:
        """The keys that begin with the prefix and a colon."""
        pattern, cursor = re.sub(r"([\\*?\[\]])", r"\\\1", f"{self._prefix}:") + "*", b"0"
        while True:
            ((cursor, keys),) = self._ask(("SCAN", cursor, "MATCH", pattern, "COUNT", 1_000))
            yield from keys
            if cursor == b"0":
                return

    def _leftover(self) -> Leftover[list[Change]]:
        """The keys of results: others may begin with the prefix and a colon too, such as those of a delivery whose prefix is longer."""
        keys, start = Leftover[list[Change]](lambda batch: map(self._key, batch)), len(f"{self._prefix}:".encode())
        for key in self._there():
            if _OF_RESULT.match(key, start):
                keys.put(key)
        return keys

    def _read(self, content: bytes) -> Delivered:
        stored = json.loads(content)
        position = Delivered.from_json(stored["position"])
        return position if stored["prefix"] == self._prefix else replace(position, table="")

    @property
    def takeover(self) -> str:
        """As ``Sink``."""
        return f"DEL {self._position}, which delivers all anew"

    @property
    def _prefix(self) -> str:
        return self.settings.prefix or self.route.output.table

    @property
    def _position(self) -> str:
        return f"{_OWN}{self.route.name}"

    @property
    def _owner(self) -> str:
        return f"{_OWN}prefix:{self._prefix}"

    @property
    def _claimed_by(self) -> str:
        """Where the host and the lake of the delivery that has claimed the prefix are noted."""
        return f"{_OWN}lake:{self._prefix}"

    @property
    def _where(self) -> str:
        return f"delivery '{self.route.name}'"

    # ---- the server

    def _connect(self) -> Any:
        url, where = self.settings.url, self._where
        if not isinstance(url, str):
            url = secret.needed(url, where=where, name="url", setting="url= of ToRedis(...)")
        own: dict[str, Any] = {"socket_timeout": _END_SECONDS}
        if not url.startswith("unix:"):
            own["socket_connect_timeout"] = _ANSWER_SECONDS
        if self.settings.password is not None:
            setting = "password= of ToRedis(...)"
            own["password"] = secret.needed(self.settings.password, where=where, name="password", setting=setting)
        try:
            pool = library(where).ConnectionPool.from_url(url, **own)
        except ValueError:
            fix = f"For example redis://cache:6379/0; it begins with {', '.join(SCHEMES)}. Correct url= of ToRedis(...), or what it names."
            raise ConnectorError(where, "a URL of Redis", "another text", fix, code="DELIVERY-003") from None
        return pool.get_connection()

    def _check_server(self) -> None:
        """Refuse a cluster, whose keys cannot change in one MULTI, and a server that evicts keys when its memory is full."""
        (content,) = self._ask(("INFO",))
        about = dict(line.split(":", 1) for line in content.decode().splitlines() if ":" in line)
        if about.get("cluster_enabled") == "1":
            fix = "Deliver to a server, with replicas if need be: the keys of one delivery change together."
            raise ConnectorError(self._where, "a server of Redis", "a cluster", fix, code="DELIVERY-003")
        if about.get("maxmemory_policy", "").startswith("allkeys") and about.get("maxmemory") != "0":
            fix = "CONFIG SET maxmemory-policy noeviction; or give results a server of their own."
            got = f"maxmemory-policy {about['maxmemory_policy']}"
            raise ConnectorError(self._where, "a server that evicts no results", got, fix, code="DELIVERY-003")

    def _not_own(self, got: str) -> ConnectorError:
        fix = (
            f"Give the delivery a prefix of its own: ToRedis(..., prefix=...). If what is there is of no use any more, delete the keys {self._prefix}:*, "
            f"{self._owner} and {self._position}; all results are then delivered anew."
        )
        expected = "keys of this delivery"
        return ConnectorError(f"{self._where}, prefix '{self._prefix}'", expected, got, fix, code="DELIVERY-004")

    def _taken_over(self, there: int, number: int) -> LifecycleError:
        fix = (
            "Only one lake may deliver to it under one name: give the other one a name and a prefix of its own, "
            f"deliver=[ToRedis(..., name=..., prefix=...)]. If the other one is gone: DEL {self._position}, which delivers all anew."
        )
        expected, got = f"delivery {number - 1} at {self._position}", f"delivery {there}"
        return LifecycleError(self._where, expected, got, fix, code="LIFECYCLE-240")

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Errors of the library as what a delivery does about them. A MULTI that is cut short is forgotten with its connection."""
        errors = library(self._where).exceptions
        try:
            yield
        except errors.RedisError as error:
            self.close()
            text = str(error)
            if isinstance(error, errors.ResponseError) and not isinstance(error, _passing(errors)):
                fix = f"Mend it, and restart the delivery: floodmark restart {self.route.name}"
                raise ConnectorError(self._where, "a server that takes it", text, fix, code="DELIVERY-008") from error
            fix = "It goes on once the server can be reached and has room."
            raise Away(self._where, "a server that answers", text, fix, code="DELIVERY-001") from error
        except OSError as error:
            if isinstance(error, FileNotFoundError):  # of the lake
                self.close()
                raise
            self.close()
            fix = "It goes on once the server can be reached."
            raise Away(self._where, "a server that answers", str(error), fix, code="DELIVERY-001") from error
        except BaseException:
            self.close()
            raise


def _passing(errors: Any) -> tuple[type[Exception], ...]:
    """Answers of a server that is full, loads its data, or is a replica for now."""
    names = (
        "OutOfMemoryError",
        "BusyLoadingError",
        "ReadOnlyError",
        "MasterDownError",
        "TryAgainError",
        "ExecAbortError",
    )
    return tuple(getattr(errors, name) for name in names)


def _chunks(items: Any) -> Iterator[Sequence[Any]]:
    iterator = iter(items)
    while some := list(islice(iterator, _TOGETHER)):
        yield some


def library(where: str) -> ModuleType:
    """The library of Redis.

    Raises:
        SetupError: SETUP-145, it is not installed.
    """
    try:
        import redis  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        fix = "Install it: pip install 'floodmark[redis]'"
        raise SetupError(where, "the library redis", "none", fix, code="SETUP-145") from error
    return redis
