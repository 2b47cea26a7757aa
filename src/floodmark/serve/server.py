"""The server: one thread for all clients, with time-outs for slow ones."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from floodmark.core.errors import SetupError
from floodmark.serve.app import Answers, refused
from floodmark.serve.refusals import Malformed
from floodmark.serve.service import Service
from floodmark.serve.tokens import Tokens

PORT = 9465
"""Port of the service by default."""
_HEAD_SECONDS = 10.0
"""Seconds in which the head of a request has to come."""
_IDLE_SECONDS = 15
"""Seconds after which a connection between two requests is closed."""
_CONNECTIONS = 4_000
"""Connections and tasks beyond which requests are answered by 503."""
_HEAD_BYTES = 131_072
"""Most bytes of the head of a request."""
_REFUSED_SECONDS = 2.0
"""Seconds for which a client that was refused may go on sending, so that it sees why."""
_SWITCH_SECONDS = 0.0005
"""Longest time for which another thread copies a commit before one answers."""
_STARTING_SECONDS = 30.0
_CLOSING_SECONDS = 5


class _Protocol(HttpToolsProtocol):
    """A connection that ends if the head of a request does not come in time, is too long, or is none."""

    _deadline: asyncio.TimerHandle | None = None
    _is_head = True
    """The head of a request is not complete."""
    _is_refused = False
    _bytes = 0
    """Of the head, at most."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Read on, unless the head is too long."""
        if self._is_refused:  # the client reads the answer only after it has sent all
            return
        self._bytes += len(data)
        if self._is_head and self._bytes > _HEAD_BYTES:
            self.send_400_response(f"more than {_HEAD_BYTES} bytes of a URL and headers")
            return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Begin to wait for the end of a head."""
        super().on_message_begin()
        self._is_head = True
        if self._deadline is None:
            self._wait()

    def on_headers_complete(self) -> None:
        """Stop waiting."""
        self._stop_waiting()
        self._is_head, self._bytes = False, 0
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, or has too long a head; the rest of it is not read, and the connection ends soon."""
        fix = "Send a request of HTTP/1.1; ask for long keys by POST .../lookup."
        answer = refused(Malformed("request", "one of HTTP", msg, fix, code="SERVE-018"))
        head = (
            f"HTTP/1.1 400 Bad Request\r\ncontent-type: {answer.media_type}\r\ncontent-length: {len(answer.body)}\r\n"
        )
        self.transport.write(f"{head}connection: close\r\n\r\n".encode() + bytes(answer.body))
        self._is_refused = True
        self._stop_waiting()
        self.loop.call_later(_REFUSED_SECONDS, self.transport.close)

    def _wait(self) -> None:
        self._deadline = self.loop.call_later(_HEAD_SECONDS, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        self.transport.close()


def put_answers_first() -> None:
    """Let nothing of this process keep an answer waiting.

    Another thread gives way ten times as fast as Python lets it. The first instant that Arrow gives as Python's makes it import pandas, for half a second
    or more: that is done now. The search for cyclic garbage leaves out what is there now, for which it would take some 50 ms.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    pa.scalar(0, pa.timestamp("us", tz="UTC")).as_py()
    gc.collect()
    gc.freeze()


@contextmanager
def serving(service: Service, tokens: Tokens, host: str, port: int) -> Iterator[str]:
    """Serve in a thread while the context lasts. Yields the address.

    Args:
        service: what answers.
        tokens: who may ask.
        host: address to listen on.
        port: to listen on; 0 for any free one.

    Raises:
        SetupError: SETUP-140 a token is missing, SETUP-141 a secret without one, SETUP-143 the port is taken.
    """
    tokens.prepare(host)
    listener = _listener(host, port)
    config = uvicorn.Config(
        Answers(service, tokens).app(),
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_CLOSING_SECONDS,
        limit_concurrency=_CONNECTIONS,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True, name="serve-http")
    following = service.start()
    thread.start()
    try:
        _until_started(server, thread)
        name = f"[{host}]" if ":" in host else host
        yield f"http://{name}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        service.stop()
        thread.join()
        following.join()
        listener.close()


def _until_started(server: uvicorn.Server, thread: threading.Thread) -> None:
    until = time.monotonic() + _STARTING_SECONDS
    while not server.started and thread.is_alive() and time.monotonic() < until:
        time.sleep(0.01)


def _listener(host: str, port: int) -> socket.socket:
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(kind, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2_048)
    except OSError as error:
        listener.close()
        fix = "Choose another port or address: floodmark serve --port 9466"
        raise SetupError(f"serve at {host}:{port}", "a free port", str(error), fix, code="SETUP-143") from error
    return listener
