"""A schema registry on loopback with the interface of Confluent's, in memory."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Reference = tuple[str, str, int]
"""Name in the schema, subject, version."""


@dataclass
class Registry:
    """A registry.

    Args:
        port: on 127.0.0.1.
    """

    port: int
    by_id: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    status: int = 0
    credentials: str = ""
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """For clients."""
        return f"http://127.0.0.1:{self.port}"

    def add(
        self, schema: object, kind: str = "AVRO", subject: str = "s", references: Sequence[Reference] = (), id_: int = 0
    ) -> int:
        """Register a schema: Avro as JSON, Protobuf as a file descriptor. Returns its id."""
        number = id_ or len(self.by_id) + 1
        if isinstance(schema, bytes):
            schema = base64.b64encode(schema).decode()
        text = schema if isinstance(schema, str) else json.dumps(schema)
        named = [dict(zip(("name", "subject", "version"), reference, strict=True)) for reference in references]
        self.by_id[number] = {"schema": text, "schemaType": kind, "references": named}
        self.subjects.setdefault(subject, []).append(number)
        return number

    def head(self, number: int) -> bytes:
        """What a message of a schema begins with."""
        return b"\0" + number.to_bytes(4, "big")

    def answer(self, path: str, authorization: str) -> tuple[int, object]:
        """Status and body."""
        self.asked.append(path)
        if self.status:
            return self.status, {"message": "not now"}
        if self.credentials and authorization != self.credentials:
            return 401, {"error_code": 40101}
        match urlsplit(path).path.strip("/").split("/"):
            case ["schemas", "ids", number] if int(number) in self.by_id:
                return 200, self.by_id[int(number)]
            case ["subjects", subject, "versions", version] if len(self.subjects.get(subject, ())) >= int(version):
                number = self.subjects[subject][int(version) - 1]
                return 200, {**self.by_id[number], "id": number, "subject": subject, "version": int(version)}
            case _:
                return 404, {"error_code": 40403, "message": "Schema not found"}


@contextmanager
def running() -> Iterator[Registry]:
    """A registry, stopped with this context."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = registry.answer(self.path, self.headers.get("Authorization", ""))
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry = Registry(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
