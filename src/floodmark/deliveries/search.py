"""Search engines: results as documents of OpenSearch or Elasticsearch, put and deleted by id.

Documents have the number of their delivery as an external version, which the server compares: a repeated delivery changes nothing, and what an earlier
process still sends is refused. All results at once go into an index of their own, to which the alias moves when it is complete.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from floodmark.core import crash
from floodmark.core.errors import ConnectorError, LifecycleError, SetupError
from floodmark.deliveries import claims
from floodmark.deliveries.documents import document
from floodmark.deliveries.sink import Altered, Away, Change, Changes, Sink
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.assets.delivery import Route
from floodmark.spec.assets.to_search import ToSearch
from floodmark.spec.values import secret
from floodmark.spec.values.secret import Secret

_ANSWER_SECONDS = 60
_BYTES = 5_000_000
"""Bytes after which a request gets no further document."""
_KEYWORD_BYTES = 8_000
"""Longest text that is searched as a whole; engines refuse more than 32,766 bytes, four of which may be a letter."""
_LATER = frozenset({429, 502, 503, 504})
"""Answers after which the same request is sent again."""
_MISSING, _UNAUTHORIZED = 404, frozenset({401, 403})
_NO_INDEX = "index_not_found_exception"
_MADE = "resource_already_exists_exception"
_FULL = "cluster_block_exception"
"""The server's disk is nearly full, so that it takes no writes for now."""
_META = "floodmark"


@dataclass(slots=True)
class SearchSink(Sink):
    """An alias of OpenSearch or Elasticsearch.

    Args:
        settings: of the delivery.
        route: the delivery.
    """

    settings: ToSearch
    route: Route
    _client: Any = field(default=None, init=False)
    _live: str | None = field(default=None, init=False)
    """The index behind the alias; None if there is none that can be written on."""

    # ---- the sink

    @property
    def lost(self) -> bool:
        """As ``Sink``: the index is gone, or its fields are of other types than the output's columns now."""
        return self._live is None

    def prepare(self) -> None:
        """Connect; find the index behind the alias and give it the fields that it lacks.

        Raises:
            ConnectorError: DELIVERY-004, the name is that of others' documents.
        """
        self.close()
        self._client = self._connect()
        self._live = self._behind_alias()
        if self._live is not None and not self._has_fields(self._live):
            self._live = None

    def deliver(self, changes: Changes, number: int) -> None:
        """Put and delete documents; all results go into a new index, which then takes the alias."""
        if not changes.whole and self._live is None:
            msg = f"{self._where}: the index is gone"
            raise Altered(msg)
        own = {"delivery": self.route.name, "lake": changes.position.lake, "since": changes.position.to_json()}
        made = None if self._live is None else self._check_lake(self._live, changes.position.lake)
        if not changes.whole:
            self._send(changes.batches, number)
        elif made != own:  # otherwise the alias had moved before the process was killed
            target = f"{self._alias}-{number:06d}"
            target = f"{target}-again" if target == self._live else target
            self._make(target, own)
            crash.point("delivery.after_clear")
            self._send(changes.batches, number, target)
            self._behind_alias()  # refuses one that another delivery has taken meanwhile
            crash.point("delivery.before_commit")
            self._take_alias(target, own)
            self._live = target
        crash.point("delivery.after_commit")

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
        self._client = None

    # ---- documents

    def _send(self, batches: Iterator[list[Change]], number: int, target: str | None = None) -> None:
        """Send changes, into an index or behind the alias, whatever index that is then of."""
        index, lines, size = target or self._alias, list[bytes](), 0
        # without the alias the server would make an index where somebody has removed it
        path = f"/{index}/_bulk?require_alias={'true' if target is None else 'false'}"
        for batch in batches:
            for change in batch:
                lines += (document(part).encode() for part in _action(change, number))
                size += len(lines[-1])
                if size >= _BYTES:
                    self._bulk(path, lines, number)
                    lines, size = [], 0
            self._bulk(path, lines, number)
            lines, size = [], 0
            crash.point("delivery.after_batch")

    def _bulk(self, path: str, lines: list[bytes], number: int) -> None:
        if not lines:
            return
        answer = self._ask("POST", path, b"\n".join([*lines, b""]))
        if answer["errors"]:
            for item in answer["items"]:
                (done,) = item.values()
                if done["status"] not in range(200, 300):
                    self._refused(done, number)

    def _refused(self, answer: dict[str, Any], number: int) -> None:
        """What the server says of one document that it has not taken.

        Raises:
            Away: it has no room.
            Altered: the alias is gone.
            LifecycleError: LIFECYCLE-240, a later delivery has been there.
            ConnectorError: DELIVERY-008, it does not take it.
        """
        status, error = answer["status"], answer.get("error", {})
        kind, reason = error.get("type", ""), error.get("reason", "")
        if status == _MISSING and kind != _NO_INDEX:  # nothing to delete
            return
        self._check_passing(status, kind, f"{status}: {reason}")
        if kind == "version_conflict_engine_exception":
            fix = "Only one process may deliver to it under one name: stop the other one, or give this delivery a name and an index of its own."
            got = f"document {answer['_id']} of a later delivery"
            raise LifecycleError(self._where, f"delivery {number}", got, fix, code="LIFECYCLE-240")
        why = (error.get("caused_by") or {}).get("reason", "")
        fix = f"Mend the index, or what the operator computes, and restart the delivery: floodmark restart {self.route.name}"
        got = f"{status}: {reason}{f' ({why})' if why else ''}"
        raise ConnectorError(
            self._where, f"a server that takes document {answer['_id']}", got, fix, code="DELIVERY-008"
        )

    # ---- indexes

    def _behind_alias(self) -> str | None:
        """The index that the alias is of; None if there is no such alias."""
        names: list[str] = sorted(self._ask("GET", f"/_alias/{self._alias}", missing={}))
        if not names:
            if self._mapping(self._alias) is not None:
                raise self._not_own("an index of that name, where an alias is to be")
            return None
        owners = {name: self._owner(name) or "somebody else" for name in names}
        if len(names) > 1 or owners[names[0]] != self.route.name:
            raise self._not_own(f"the alias of {', '.join(f'{name} of {owner}' for name, owner in owners.items())}")
        return names[0]

    def _mapping(self, index: str) -> dict[str, Any] | None:
        """The mapping of an index; None if there is no such index.

        Raises:
            ConnectorError: DELIVERY-004, the name is an alias.
        """
        answer = self._ask("GET", f"/{index}/_mapping", missing={})
        if answer and index not in answer:  # which names the indexes behind the alias
            raise self._not_own(f"the alias {index} of {', '.join(sorted(answer))}, where an index is to be")
        mapping: dict[str, Any] | None = answer[index]["mappings"] if answer else None
        return mapping

    def _owner(self, index: str) -> str:
        """The delivery that has made an index; empty if none has."""
        return _own(self._mapping(index) or {}).get("delivery", "")

    def _check_lake(self, index: str, lake: str) -> dict[str, str]:
        """What an index says of itself, if this lake has made it."""
        mapping = self._mapping(index)
        if mapping is None:
            msg = f"{self._where}: index {index} was removed"
            raise Altered(msg)
        own = _own(mapping)
        if (other := own.get("lake")) != lake:
            takeover = f"delete the index {index}, which delivers all anew"
            raise claims.other_lake(self.route.name, lake, f"{other}", takeover)
        return own

    def _has_fields(self, index: str) -> bool:
        """Give an index the fields that it lacks. Returns False if it has fields of other types."""
        fields, have = self._fields, (self._mapping(index) or {}).get("properties", {})
        if any(name in have and have[name].get("type", "object") != kind["type"] for name, kind in fields.items()):
            return False
        if fields.keys() - have.keys():
            self._ask("PUT", f"/{index}/_mapping", {"properties": fields})
        return True

    def _make(self, index: str, own: dict[str, str]) -> None:
        """A new index; one that this delivery has begun before goes.

        Raises:
            Altered: another delivery has made it at the same time.
            ConnectorError: DELIVERY-004, it is another delivery's, or nobody knows whose.
        """
        there = self._mapping(index)
        if there is not None and (owner := _own(there).get("delivery", "somebody else")) != self.route.name:
            raise self._not_own(f"the index {index} of {owner}")
        if there is not None:
            self._check_lake(index, own["lake"])
            self._ask("DELETE", f"/{index}", missing={})
        settings = {"index.mapping.ignore_malformed": True}  # NaN stays in the document, and is not searched for
        self._ask(
            "PUT", f"/{index}", {"settings": settings, "mappings": {"_meta": {_META: own}, "properties": self._fields}}
        )

    def _take_alias(self, index: str, own: dict[str, str]) -> None:
        """The alias moves to a complete index at once; those of this delivery that it was of, and those that were begun, go.

        An index behind whose name stands more than a number is that of another alias, such as ``sales-eu`` beside ``sales``.
        """
        self._ask("POST", f"/{index}/_refresh")
        numbered = re.compile(rf"{re.escape(self._alias)}-[0-9]{{6,}}(-again)?")
        others = [other for other in self._ask("GET", f"/{self._alias}-*") if other != index]
        gone = [
            {"remove_index": {"index": other}}
            for other in others
            if numbered.fullmatch(other) and _same_owner(_own(self._mapping(other) or {}), own)
        ]
        self._ask("POST", "/_aliases", {"actions": [{"add": {"index": index, "alias": self._alias}}, *gone]})

    @property
    def _fields(self) -> dict[str, dict[str, Any]]:
        return {column.name: _field(column.type) for column in arrow_schema(self.route.output.schema)}

    # ---- the server

    @property
    def _alias(self) -> str:
        return self.settings.index or self.route.output.table

    @property
    def _where(self) -> str:
        return f"delivery '{self.route.name}'"

    def _connect(self) -> Any:
        settings, own, headers = self.settings, dict[str, Any](), dict[str, str]()
        url = urlsplit(settings.url if isinstance(settings.url, str) else self._text(settings.url, "url", "url"))
        if url.scheme not in {"http", "https"} or not url.hostname:
            fix = "For example https://search:9200. Correct what url= of ToSearch(...) names."
            raise ConnectorError(self._where, "a URL of http or https", "another text", fix, code="DELIVERY-003")
        user, password = settings.user or unquote(url.username or ""), unquote(url.password or "")
        if settings.password is not None:
            password = self._text(settings.password, "password", "password")
        if user:
            headers["authorization"] = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"
        if settings.api_key is not None:
            headers["authorization"] = f"ApiKey {self._text(settings.api_key, 'API key', 'api_key')}"
        if settings.ca_file:
            own["ca_certs"] = settings.ca_file
        port = url.port or (443 if url.scheme == "https" else 9200)
        transport = library(self._where)
        node = transport.NodeConfig(
            url.scheme, url.hostname, port, url.path, headers=headers, request_timeout=_ANSWER_SECONDS, **own
        )
        return transport.Transport([node], max_retries=0, meta_header=False)

    def _ask(self, method: str, path: str, body: Any = None, *, missing: Any = None) -> Any:
        """A request and its answer.

        Args:
            method: of HTTP.
            path: with what is asked behind "?".
            body: a document, or lines of documents.
            missing: the answer where there is no such thing; None: that is an error.

        Raises:
            Away: no answer, or one that says: later.
            Altered: an index is gone.
            ConnectorError: DELIVERY-010 credentials that the server does not take, DELIVERY-008 a request that it does not take.
        """
        transport = library(self._where)
        kind = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
        headers = {"accept": "application/json", **({} if body is None else {"content-type": kind})}
        try:
            reply = self._client.perform_request(method, path, body=body, headers=headers)
        except transport.TransportError as error:  # a time-out and a certificate too
            raise self._away(f"{type(error).__name__}: {error.message}") from error
        status, answer = reply.meta.status, reply.body
        if status in range(200, 300):
            return answer
        about = answer.get("error", {}) if isinstance(answer, dict) else {}
        reason = about if isinstance(about, str) else f"{about.get('reason', answer)}"
        name = "" if isinstance(about, str) else about.get("type", "")
        got = f"{status}: {reason}"
        if status == _MISSING and missing is not None:
            return missing
        self._check_passing(status, name, got)
        if status in _UNAUTHORIZED:
            fix = f"Give the user the rights to write {self._alias}-*, or set another secret, and restart: floodmark restart {self.route.name}"
            raise ConnectorError(self._where, "credentials that the server takes", got, fix, code="DELIVERY-010")
        fix = f"Mend it, and restart the delivery: floodmark restart {self.route.name}"
        raise ConnectorError(self._where, f"a server that takes {method} {path}", got, fix, code="DELIVERY-008")

    def _check_passing(self, status: int, kind: str, got: str) -> None:
        """What an error says of the server or of the index, whatever was asked.

        Raises:
            Away: it has no room, or no time.
            Altered: the index is gone, or there already.
        """
        if status in _LATER or kind == _FULL:
            raise self._away(got)
        if kind == _MADE:
            msg = f"{self._where}: an index of {self._alias} was made by another program at the same time"
            raise Altered(msg)
        if kind == _NO_INDEX:
            msg = f"{self._where}: an index of {self._alias} was removed"
            raise Altered(msg)

    def _text(self, held: Secret, name: str, setting: str) -> str:
        return secret.needed(held, where=self._where, name=name, setting=f"{setting}= of ToSearch(...)")

    def _not_own(self, got: str) -> ConnectorError:
        fix = "Give the delivery an index of its own: ToSearch(..., index=...). If what is there is of no use any more, delete it."
        where = f"{self._where}, index '{self._alias}'"
        return ConnectorError(where, "documents of this delivery", got, fix, code="DELIVERY-004")

    def _away(self, got: str) -> Away:
        fix = "It goes on once the server can be reached and has room."
        return Away(self._where, "a server that takes documents", got, fix, code="DELIVERY-001")


def _own(mapping: dict[str, Any]) -> dict[str, str]:
    """What a delivery has written down of itself in the mapping of its index."""
    own: dict[str, str] = mapping.get("_meta", {}).get(_META, {})
    return own


def _same_owner(own: dict[str, str], other: dict[str, str]) -> bool:
    """Whether two indexes are of one delivery of one lake."""
    return all(own.get(name) == other.get(name) for name in ("delivery", "lake"))


def _action(change: Change, number: int) -> Iterator[dict[str, Any]]:
    """What becomes of a document, as the lines of a request."""
    about = {"_id": change.key, "version": number + 1, "version_type": "external_gte"}
    yield {"delete" if change.row is None else "index": about}
    if change.row is not None:
        yield dict(change.row)


def _field(kind: pa.DataType) -> dict[str, Any]:
    """A column's type as that of a field. The document itself has the value as it is."""
    types = pa.types
    if types.is_list(kind):
        return _field(kind.value_type)
    if types.is_integer(kind):
        return {"type": "long"}
    if types.is_floating(kind) or types.is_decimal(kind):
        return {"type": "double"}
    if types.is_boolean(kind):
        return {"type": "boolean"}
    if types.is_timestamp(kind) or types.is_date(kind):
        return {"type": "date"}
    if types.is_string(kind):
        return {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": _KEYWORD_BYTES}}}
    if types.is_struct(kind):
        return {"type": "object", "properties": {part.name: _field(part.type) for part in kind}}
    if types.is_binary(kind):
        return {"type": "keyword", "ignore_above": _KEYWORD_BYTES}
    return {"type": "object", "enabled": False}  # a map: its keys are no fields


def library(where: str) -> ModuleType:
    """The library that speaks to OpenSearch and Elasticsearch.

    Raises:
        SetupError: SETUP-147, it is not installed.
    """
    try:
        import elastic_transport  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        fix = "Install it: pip install 'floodmark[search]'"
        raise SetupError(where, "the library elastic-transport", "none", fix, code="SETUP-147") from error
    return elastic_transport
