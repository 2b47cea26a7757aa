"""A program that is called by deliveries to webhooks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hook:
    """A program that is called; ``answers`` says what it answers next, or waits; ``content`` is that of each answer, behind which it ``closes`` the connection."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any], str | None]] = []
        self.answers: list[int | Callable[[], int]] = []
        self.content = b""
        self.closes = False
        hook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hook.requests.append((self.headers["Idempotency-Key"], body, self.headers["X-Token"]))
                answer = hook.answers.pop(0) if hook.answers else 200 if hook.content else 204
                self.send_response(answer if isinstance(answer, int) else answer())
                self.send_header("Content-Length", str(len(hook.content)))
                self.end_headers()
                self.wfile.write(hook.content)
                self.close_connection = hook.closes

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def seen(self) -> list[tuple[str, Any, Any]]:
        """(change, key, total) of each request."""
        return [
            (body["change"], body.get("key", {}).get("key"), (body.get("row") or {}).get("total"))
            for _, body, _ in self.requests
        ]

    @staticmethod
    @contextmanager
    def serving() -> Iterator[Hook]:
        """A program that ends with the block."""
        made = Hook()
        try:
            yield made
        finally:
            made.server.shutdown()
            made.server.server_close()
