"""The server of metrics and pages: reads the control store, changes nothing, and listens on this machine alone by default."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, unquote, urlsplit

from floodmark.control.processes.holding import Holding
from floodmark.control.serving import pages
from floodmark.control.serving.exposition import exposition
from floodmark.control.serving.lineage import telling
from floodmark.control.state.records import StreamId
from floodmark.control.state.store import Store
from floodmark.control.streams.vitals import Vitals, vitals
from floodmark.core.errors import FloodmarkError, SetupError
from floodmark.observe.backlog import Backlogs

PORT = 9464
"""Port of the server by default."""
HOST = "127.0.0.1"
LIVE = "/live"
"""Path that says whether the process is well, without a look at the store."""
ACTION = "serve"
"""Action in the journal with the address of a server."""
_LOCAL = {"localhost", "127.0.0.1", "[::1]"}
_FILES = {"/grafana.json": "application/json", "/rules.yaml": "text/plain; charset=utf-8"}
"""Path of a file of the package -> its content type: a dashboard for Grafana, alerts for Prometheus."""
_FRESH_SECONDS = 1.0
"""Time for which a look at all streams is used again, so that many readers cost no more than one."""


@dataclass(slots=True)
class Looks:
    """Looks at all streams of a store, at most one per second.

    Args:
        store: the control store.
    """

    store: Store
    _backlogs: Backlogs = field(default_factory=Backlogs)
    _holding: Holding = field(default_factory=Holding)
    _seen: tuple[float, list[Vitals]] = (float("-inf"), [])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def streams(self) -> Sequence[Vitals]:
        """The vitals of all streams, in the order of their names."""
        with self._lock:
            if time.monotonic() - self._seen[0] > _FRESH_SECONDS:
                seen = vitals(self.store, self.store.deployments(), self._backlogs, self._holding)
                self._seen = time.monotonic(), seen
            return self._seen[1]


class _Handler(BaseHTTPRequestHandler):
    """Answers GET: ``/metrics``, ``/``, ``/streams/NAME``, ``/live``, and the files of ``_FILES``."""

    looks: ClassVar[Looks]
    is_stuck: ClassVar[Sequence[Callable[[], bool]]]
    """One function: a bare one would become a method."""
    protocol_version = "HTTP/1.1"
    timeout = 30
    """Of a connection that sends nothing, s."""

    def do_GET(self) -> None:
        """Answer a request; a failure of the store is answered, too."""
        if not self._is_meant():
            self._send(HTTPStatus.FORBIDDEN, b"another host is asked for\n", "text/plain; charset=utf-8")
            return
        try:
            status, content, kind = self._answer(urlsplit(self.path))
        except FloodmarkError as error:
            status, content, kind = HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode(), "text/plain; charset=utf-8"
        self._send(status, content, kind)

    def _answer(self, url: Any) -> tuple[HTTPStatus, bytes, str]:
        html = "text/html; charset=utf-8"
        if url.path == LIVE:
            stuck = any(asks() for asks in self.is_stuck)
            status = HTTPStatus.SERVICE_UNAVAILABLE if stuck else HTTPStatus.OK
            return status, b"stuck\n" if stuck else b"live\n", "text/plain; charset=utf-8"
        if url.path == "/metrics":
            content, kind = exposition(self.looks.streams, self.headers.get("Accept", ""))
            return HTTPStatus.OK, content, kind
        if url.path in _FILES:
            return HTTPStatus.OK, (files(__package__) / url.path[1:]).read_bytes(), _FILES[url.path]
        streams = self.looks.streams()
        if url.path == "/":
            return HTTPStatus.OK, pages.overview(streams).encode(), html
        root, _, name = url.path.removeprefix("/").partition("/")
        lake = parse_qs(url.query).get("lake", [""])[0]
        for stream in streams if root == "streams" else ():
            if stream.name == unquote(name) and lake in {"", stream.deployment.lake}:
                return HTTPStatus.OK, pages.detail(self.looks.store, stream).encode(), html
        return HTTPStatus.NOT_FOUND, pages.missing(unquote(url.path)).encode(), html

    def _is_meant(self) -> bool:
        """False for a name that another site has made to lead here: a browser then would show that site what this server knows."""
        bound, *_ = self.connection.getsockname()
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        return bound not in {"127.0.0.1", "::1"} or host in _LOCAL

    def _send(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Nothing: a supervisor's lines are about streams."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing for a reader who has gone away."""


def page_of(store: Store, stream: StreamId) -> str | None:
    """Address of the page of a stream, at the server that was last started with the store; None if none ever was."""
    last = store.last(ACTION)
    if last is None:
        return None
    return f"{last['detail']['url']}/streams/{quote(stream.operator)}?lake={quote(stream.lake, safe='')}"


@contextmanager
def serving(
    store: Store, host: str, port: int | None, say: Callable[[str], None], is_stuck: Callable[[], bool] = lambda: False
) -> Iterator[str]:
    """Serve metrics and pages in threads while the context lasts, and tell of lineage. Yields the address.

    Args:
        store: the control store.
        host: address to listen on.
        port: port to listen on; None for ``PORT``, or any free one if that is taken.
        say: called with the address.
        is_stuck: True if what this process does beside serving has stopped; ``LIVE`` then says so.

    Raises:
        SetupError: SETUP-074, the port is taken.
    """
    handler = type("Handler", (_Handler,), {"looks": Looks(store), "is_stuck": (is_stuck,)})
    try:
        server = _Server((host, PORT if port is None else port), handler)
    except OSError as error:
        if port is not None or error.errno != errno.EADDRINUSE:
            fix = "Stop what listens there, or choose another port: floodmark supervise --metrics-port 9465"
            where = f"metrics and pages at {host}:{PORT if port is None else port}"
            raise SetupError(where, "a free port", str(error), fix, code="SETUP-074") from error
        server = _Server((host, 0), handler)
    url = f"http://{'127.0.0.1' if host in {'', '0.0.0.0'} else host}:{server.server_address[1]}"  # noqa: S104 - named, not bound
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
    thread.start()
    store.note("supervisor", ACTION, url=url)
    say(f"streams at {url}, metrics for Prometheus at {url}/metrics")
    try:
        with telling(store, say):
            yield url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
