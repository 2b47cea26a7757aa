"""An S3 server on loopback (moto, in memory), and a proxy before it that counts requests and injects faults by seed."""

from __future__ import annotations

import http.client
import os
import random
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Fault = Literal["503", "409", "slow", "lost", "refused"]
"""An answer in the server's place; ``lost``: the server has done its work, and the connection ends without its answer."""
REGION = "us-east-1"
_SLOW_SECONDS = 0.05
_LOOK_SECONDS = 0.05
_START_SECONDS = 60


@dataclass(frozen=True)
class Server:
    """A running S3 server.

    Args:
        port: on 127.0.0.1.
        pid: of its process.
    """

    port: int
    pid: int

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self.port}"

    def bucket(self, name: str = "") -> str:
        """Make a bucket; returns its URI."""
        name = name or f"b{uuid.uuid4().hex[:12]}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("PUT", f"/{name}", headers={"Authorization": _SIGNED})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        assert answer.status == 200, answer.status
        return f"s3://{name}"


_SIGNED = f"AWS4-HMAC-SHA256 Credential=key/20260101/{REGION}/s3/aws4_request, SignedHeaders=host, Signature=0"


def environment(url: str) -> dict[str, str]:
    """The variables with which a process reaches a server."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def running() -> Iterator[Server]:
    """A server in a process of its own, which ends with this context."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + _START_SECONDS
        while not _answers(port):
            assert process.poll() is None, "moto_server has ended"
            assert time.monotonic() < until, "moto_server does not answer"
            threading.Event().wait(_LOOK_SECONDS)
        yield Server(port, process.pid)
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@dataclass
class Proxy:
    """A proxy before a server.

    Args:
        server: behind it.
        fault: (method, path, how many requests there were before) -> the fault of a request; None for none.
    """

    server: Server
    fault: Callable[[str, str, int], Fault | None] = lambda _method, _path, _number: None
    requests: list[tuple[str, str]] = field(default_factory=list)
    """(method, path) of each request, in order."""
    faults: Counter[str] = field(default_factory=Counter)
    port: int = 0

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def listening(self) -> Iterator[Proxy]:
        """The proxy, at work in this process while the context lasts."""
        proxy = self

        class Handler(_Handler):
            of = proxy

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
            listener.daemon_threads = True
            self.port = listener.server_address[1]
            thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
            thread.start()
            try:
                yield self
            finally:
                listener.shutdown()
                thread.join()


def seeded(seed: int, share: float = 0.1) -> Callable[[str, str, int], Fault | None]:
    """Faults of a seed: a share of all requests. 409 and lost answers only where a file is written."""
    drawn = random.Random(seed)

    def fault(method: str, path: str, number: int) -> Fault | None:  # noqa: ARG001 - of every request
        if drawn.random() >= share:
            return None
        kinds: list[Fault] = ["503", "slow", "409", "lost", "lost"] if method == "PUT" else ["503", "slow"]
        return drawn.choice(kinds)

    return fault


_ERRORS = {
    "503": (503, "SlowDown"),
    "409": (409, "ConditionalRequestConflict"),
    "refused": (403, "ExpiredToken"),
}


class _Handler(BaseHTTPRequestHandler):
    of: Proxy
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        proxy = self.of
        fault = proxy.fault(self.command, self.path, len(proxy.requests))
        proxy.requests.append((self.command, self.path))
        if fault is not None:
            proxy.faults[fault] += 1
        if fault in _ERRORS:
            if fault == "409" and "If-None-Match" not in self.headers:
                fault = "503"
            status, code = _ERRORS[fault]
            return self._answer(status, {"Content-Type": "application/xml"}, f"<Error><Code>{code}</Code></Error>".encode())
        if fault == "slow":
            threading.Event().wait(_SLOW_SECONDS)
        connection = http.client.HTTPConnection("127.0.0.1", proxy.server.port, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in {"connection", "expect"}}
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if fault == "lost":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return None
        passed = {
            name: value
            for name, value in answer.getheaders()
            if name.lower() not in {"connection", "transfer-encoding", "content-length", "date", "server"}
        }
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        return self._answer(answer.status, passed, content, length)

    def _answer(self, status: int, headers: dict[str, str], content: bytes, length: str | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 - as http.server calls them

    def log_message(self, *_: object) -> None:
        """Nothing."""


def apply(url: str) -> None:
    """Let this process reach a server, for scripts."""
    os.environ.update(environment(url))
