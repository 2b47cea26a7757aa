"""An S3 server on loopback (moto, in memory), and a proxy before it that counts requests and injects faults by seed."""

from __future__ import annotations

import http.client
import json
import random
import re
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Literal

from ports import free_port

Fault = Literal["503", "409", "slow", "lost", "refused", "region", "501", "unconditional", "away"]
"""An answer in the server's place; ``lost``: the server has done its work, and the connection ends without its answer; ``unconditional``: the server does
not see the condition of a put; ``away``: it is not asked, and the connection ends."""
REGION = "us-east-1"
_SLOW_SECONDS = 0.05
_LOOK_SECONDS = 0.05
_START_SECONDS = 300


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

    def make_folder(self, location: str) -> None:
        """What Hadoop puts into a bucket for a folder: an empty object, whose name ends with a slash."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("PUT", f"/{location.removeprefix('s3://')}/", headers={"Authorization": _SIGNED})
        assert connection.getresponse().status == 200
        connection.close()

    def remove(self, name: str) -> None:
        """Remove a bucket and all that is in it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", f"/{name}?list-type=2", headers={"Authorization": _SIGNED})
        keys = re.findall(r"<Key>([^<]+)</Key>", connection.getresponse().read().decode())
        for path in [*(f"/{name}/{key}" for key in keys), f"/{name}"]:
            connection.request("DELETE", path, headers={"Authorization": _SIGNED})
            connection.getresponse().read()
        connection.close()


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
    port = free_port()
    command = [sys.executable, __file__, _STORE, str(port)]
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


@dataclass(frozen=True)
class Plan:
    """The faults that a proxy injects.

    Args:
        seed: of random faults: 409 and lost answers only where a file is written.
        share: of the requests that meet a random fault.
        fault: of certain requests.
        method: of these.
        path: part of their paths.
        times: how many of them; by default all.
        key: access key of requests that meet no fault.
    """

    seed: int = 0
    share: float = 0.0
    fault: Fault | None = None
    method: str = ""
    path: str = ""
    times: int = 1 << 30
    key: str = ""


class Faults:
    """The state of a plan, in the proxy's process."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.left, self.drawn = plan, plan.times, random.Random(plan.seed)
        self.lock = threading.Lock()

    def next(self, method: str, path: str, signed: str) -> Fault | None:
        """The fault of the next request."""
        plan = self.plan
        with self.lock:
            if plan.key and f"Credential={plan.key}/" in signed:
                return None
            if plan.fault is not None:
                meets = plan.method in {"", method} and plan.path in path and self.left > 0
                self.left -= meets
                return plan.fault if meets else None
            if self.drawn.random() >= plan.share:
                return None
            kinds: list[Fault] = ["503", "slow", "409", "lost", "lost"] if method == "PUT" else ["503", "slow"]
            return self.drawn.choice(kinds)


@dataclass(frozen=True)
class Proxy:
    """A proxy before a server, in a process of its own: some calls of delta-rs keep the interpreter's lock while they wait for an answer.

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

    def plan(self, plan: Plan | None = None) -> None:
        """Inject the faults of a plan from now on; without one, none."""
        self._ask("plan", asdict(plan or Plan()))

    def requests(self) -> list[tuple[str, str, str]]:
        """(method, path, fault or "") of each request, in order."""
        return [(method, path, fault) for method, path, fault in self._ask("requests", None)]

    def faults(self) -> Counter[str]:
        """How many faults there were of each kind."""
        return Counter(fault for _, _, fault in self.requests() if fault)

    def _ask(self, what: str, content: object) -> list[list[str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request("POST", f"{_CONTROL}{what}", json.dumps(content))
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer


_CONTROL = "/-proxy-/"
_STORE = "store"


@contextmanager
def proxied(server: Server) -> Iterator[Proxy]:
    """A proxy, at work while the context lasts."""
    process = subprocess.Popen([sys.executable, __file__, str(server.port)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Proxy(int(process.stdout.readline()), process.pid)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


_ERRORS = {
    "503": (503, "SlowDown"),
    "409": (409, "ConditionalRequestConflict"),
    "refused": (403, "ExpiredToken"),
    "region": (400, "AuthorizationHeaderMalformed"),
    "501": (501, "NotImplemented"),
}


class _Handler(BaseHTTPRequestHandler):
    behind = 0
    faults = Faults(Plan())
    requests: ClassVar[list[tuple[str, str, str]]] = []
    puts = threading.Lock()
    """S3 judges the condition of a put and stores its content in one step; moto does so in two."""
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.startswith(_CONTROL):
            if self.path.endswith("plan"):
                type(self).faults = Faults(Plan(**json.loads(body)))
                self.requests.clear()
            return self._answer(200, {}, json.dumps(self.requests).encode())
        fault = self.faults.next(self.command, self.path, self.headers.get("Authorization", ""))
        if fault == "409" and "If-None-Match" not in self.headers:
            fault = "503"
        self.requests.append((self.command, self.path, fault or ""))
        if fault == "away":
            return self._hang_up()
        if fault in _ERRORS:
            status, code = _ERRORS[fault]
            content = f"<Error><Code>{code}</Code></Error>".encode()
            return self._answer(status, {"Content-Type": "application/xml"}, content)
        if fault == "unconditional":
            del self.headers["If-None-Match"]
        if fault == "slow":
            threading.Event().wait(_SLOW_SECONDS)
        connection = http.client.HTTPConnection("127.0.0.1", self.behind, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in {"connection", "expect"}}
        with self.puts if self.command == "PUT" else nullcontext():
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        connection.close()
        if fault == "lost":
            return self._hang_up()
        left_out = {"connection", "transfer-encoding", "content-length", "date", "server"}
        passed = {name: value for name, value in answer.getheaders() if name.lower() not in left_out}
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        return self._answer(answer.status, passed, content, length)

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

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


class _Listener(ThreadingHTTPServer):
    request_queue_size = 512
    """Connections that wait to be taken: the system leaves those beyond unanswered, and their clients try again after seconds."""


def _listen(server: int) -> None:
    """The proxy's process: print its port, and serve until it is ended."""
    _Handler.behind = server
    listener = _Listener(("127.0.0.1", 0), _Handler)
    sys.stdout.write(f"{listener.server_address[1]}\n")
    sys.stdout.flush()
    listener.serve_forever()


def _store(port: int) -> None:
    """The server's process: moto's S3 without its other services, for which it looks on the disk at each request.

    What a list says of an object it makes once, by botocore's model of the answer: half the time of a server with some hundred objects.
    """
    from moto.core.serialize import S3Serializer
    from moto.moto_server.werkzeug_app import create_backend_app
    from moto.server import MotoRequestHandler
    from werkzeug.serving import run_simple

    whole, listed = S3Serializer._serialize_type_structure, dict[str, dict[str, Any]]()

    def structure(self: S3Serializer, serialized: dict[str, Any], value: Any, shape: Any, key: str) -> None:
        if shape.name != "Object":
            return whole(self, serialized, value, shape, key)
        if (content := repr(value)) not in listed:
            written: dict[str, Any] = {}
            whole(self, written, value, shape, key)
            listed[content] = written
        serialized.update(listed[content])
        return None

    S3Serializer._serialize_type_structure = structure
    run_simple("127.0.0.1", port, create_backend_app("s3"), threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    if sys.argv[1] == _STORE:
        _store(int(sys.argv[2]))
    else:
        _listen(int(sys.argv[1]))
