"""Client of a schema registry: schemas by their ids, each asked for once in a process."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import quote

from floodmark.connectors.unit import Undecodable
from floodmark.core.errors import ConnectorError
from floodmark.core.patience import waits
from floodmark.spec.rows.registry import SchemaRegistry
from floodmark.spec.values import secret
from floodmark.spec.values.secret import Env, SecretFile

_ASK_SECONDS = 10.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 15.0
_NOT_FOUND, _REFUSED = 404, frozenset({401, 403})
_PATIENT = frozenset({408, 425, 429, *range(500, 600)})
"""Answers that a later request may not get."""
_HEAD = 5
"""Bytes before the value of a message whose schema is in a registry: 0, and the id of the schema."""
_TYPES = "application/vnd.schemaregistry.v1+json, application/json"


class Text(NamedTuple):
    """A schema as the registry has it.

    Args:
        text: of the schema; of Protobuf, a file descriptor in base64.
        kind: ``"AVRO"``, ``"PROTOBUF"`` or ``"JSON"``.
        references: name in the schema -> path of the schema that is meant, in the registry.
    """

    text: str
    kind: str
    references: dict[str, str]


class UnknownSchema(Exception):  # noqa: N818 - no error of the program: the message is reported, the others land
    """The registry has no schema of an id."""


_known: dict[tuple[str, str], Text] = {}
_lock = threading.Lock()


class Registry:
    """A registry as a reader asks it.

    Args:
        settings: as the author wrote them.
        where: for messages.
        source: name of the source, for the command to type.
    """

    def __init__(self, settings: SchemaRegistry, where: str, source: str) -> None:
        self._settings, self._where, self._source = settings, where, source
        self._missing = set[str]()

    def of_id(self, number: int, *, protobuf: bool = False) -> Text:
        """The schema of an id.

        Raises:
            UnknownSchema: there is none. It is not asked for again by this object, as such messages may be many.
            ConnectorError: CONNECTOR-240 the registry does not answer, 241 it refuses.
        """
        return self.of_path(f"/schemas/ids/{number}", protobuf=protobuf)

    def of_path(self, path: str, *, protobuf: bool = False) -> Text:
        """As ``of_id``, of a path in the registry."""
        url = f"{self._settings.url.rstrip('/')}{path}{'?format=serialized' * protobuf}"
        key = url, repr((self._settings.user, self._settings.password, self._settings.token))
        with _lock:
            text = _known.get(key)
        if text is None:
            if path in self._missing:
                raise UnknownSchema
            text = self._asked(url, path)
            with _lock:
                _known[key] = text
        return text

    def _asked(self, url: str, path: str) -> Text:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                answer = self._get(url)
                return Text(
                    answer["schema"],
                    answer.get("schemaType", "AVRO"),
                    {
                        reference[
                            "name"
                        ]: f"/subjects/{quote(reference['subject'], safe='')}/versions/{reference['version']}"
                        for reference in answer.get("references") or ()
                    },
                )
            except urllib.error.HTTPError as error:
                if error.code == _NOT_FOUND:
                    self._missing.add(path)
                    raise UnknownSchema from error
                if error.code not in _PATIENT:
                    raise self._refused(error) from error
                why = f"HTTP {error.code} {error.reason}"
            except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
                why = str(getattr(error, "reason", error)) or type(error).__name__
            if not waits(f"the schema registry {self._settings.url} does not answer ({why})", pause):
                fix = f"Start it, or correct SchemaRegistry(url=...). What has landed stays; then: floodmark land {self._source}"
                expected = f"an answer of {self._settings.url}"
                raise ConnectorError(self._where, expected, f"none: {why}", fix, code="CONNECTOR-240")
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _get(self, url: str) -> dict[str, Any]:
        request = urllib.request.Request(url, headers={"Accept": _TYPES, **self._credentials()})  # noqa: S310 - its settings check the scheme
        context = ssl.create_default_context(cafile=self._settings.ca) if url.startswith("https") else None
        with urllib.request.urlopen(request, timeout=_ASK_SECONDS, context=context) as answer:  # noqa: S310 - as above
            return dict(json.loads(answer.read()))

    def _credentials(self) -> dict[str, str]:
        settings = self._settings
        if settings.token is not None:
            return {"Authorization": f"Bearer {self._read(settings.token)}"}
        if settings.user is not None and settings.password is not None:
            user = settings.user if isinstance(settings.user, str) else self._read(settings.user)
            pair = f"{user}:{self._read(settings.password)}".encode()
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return {}

    def _read(self, reference: Env | SecretFile) -> str:
        """The secret behind a reference, read again for each request, as tokens are renewed.

        Raises:
            ConnectorError: CONNECTOR-235, there is none.
        """
        where = f"{self._where}, schema registry"
        return secret.needed(reference, where=where, name="of the registry", setting="SchemaRegistry(...)")

    def _refused(self, error: urllib.error.HTTPError) -> ConnectorError:
        expected = f"an answer of {self._settings.url}"
        fix = f"Correct user=, password=, token= or url= of SchemaRegistry(...). Then: floodmark land {self._source}"
        if error.code in _REFUSED:
            fix = f"Give it credentials that it takes. {fix}"
        return ConnectorError(
            self._where, expected, f"HTTP {error.code} {error.reason}: {error.url}", fix, code="CONNECTOR-241"
        )


def headed(value: bytes) -> tuple[int, bytes]:
    """(bytes of a message) -> the id of its schema in a registry, and the bytes behind it. Raises Undecodable."""
    if len(value) < _HEAD or value[0] != 0:
        reason = f"expected a byte 0 and the id of a schema, got {value[:_HEAD].hex(' ') or 'no bytes'}"
        raise Undecodable(reason)
    return int.from_bytes(value[1:_HEAD], "big"), value[_HEAD:]


def unknown(number: int) -> Undecodable:
    """The reason for a message whose schema the registry does not have."""
    return Undecodable(f"the schema registry has no schema of the id {number}")
