"""A store of the warm-up program: enough of S3, in the memory of this process, for Java to load what reads and writes a bucket.

It listens on this machine alone while the warm-up runs, knows one bucket, and checks no signature.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "warm-up"
_OBJECT = "<ETag>&quot;{tag}&quot;</ETag><LastModified>2025-01-01T00:00:00.000Z</LastModified>"
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class _Handler(BaseHTTPRequestHandler):
    """One request after another of a connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_HEAD(self) -> None:
        """What is known of an object."""
        self._send_object(whole=False)

    def do_GET(self) -> None:
        """An object, or the names of objects."""
        query = self._query()
        if "list-type" in query:
            self._send(200, self._listed(query).encode())
        else:
            self._send_object(whole=True)

    def do_PUT(self) -> None:
        """Keep an object, or a copy of one."""
        body, source = self._body(), self.headers.get("x-amz-copy-source")
        if source is not None:
            body = self.server.objects[unquote(source).lstrip("/").partition("/")[2]]
        self.server.objects[self._key()] = body
        copied = f"<CopyObjectResult>{_OBJECT.format(tag=_tag(body))}</CopyObjectResult>" if source is not None else ""
        self._send(200, copied.encode(), {"ETag": f'"{_tag(body)}"'})

    def do_POST(self) -> None:
        """Remove the objects that the request lists."""
        for key in re.findall(r"<Key>([^<]+)</Key>", self._body().decode()):
            self.server.objects.pop(key, None)
        self._send(200, b"<DeleteResult></DeleteResult>")

    def do_DELETE(self) -> None:
        """Remove an object."""
        self.server.objects.pop(self._key(), None)
        self._send(204)

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]

    def _query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}

    def _body(self) -> bytes:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return _unchunked(content) if "x-amz-decoded-content-length" in self.headers else content

    def _send_object(self, *, whole: bool) -> None:
        content = self.server.objects.get(self._key())
        if content is None:
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>" if whole else b"")
            return
        headers = {"ETag": f'"{_tag(content)}"', "Last-Modified": formatdate(0, usegmt=True)}
        if (part := re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))) and whole:
            first, last = int(part[1]), min(int(part[2] or len(content)), len(content) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            self._send(206, content[first : last + 1], headers)
        else:
            self._send(200, content, headers)

    def _listed(self, query: Mapping[str, str]) -> str:
        """The objects, and the folders, whose names begin with a prefix."""
        prefix, delimiter, files, folders = query.get("prefix", ""), query.get("delimiter"), [], dict[str, None]()
        for key, content in sorted(self.server.objects.items()):
            if not key.startswith(prefix) or key <= query.get("start-after", ""):
                continue
            name, mark, _ = key.removeprefix(prefix).partition(delimiter) if delimiter else (key, "", "")
            if mark:
                folders[f"{prefix}{name}{mark}"] = None
            else:
                about = f"<Size>{len(content)}</Size>{_OBJECT.format(tag=_tag(content))}"
                files.append(f"<Contents><Key>{escape(key)}</Key>{about}</Contents>")
        shared = [f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in folders]
        count = f"<KeyCount>{len(files) + len(shared)}</KeyCount><IsTruncated>false</IsTruncated>"
        return f"<ListBucketResult><Name>{BUCKET}</Name>{count}{''.join((*files, *shared))}</ListBucketResult>"

    def _send(self, status: int, content: bytes = b"", headers: Mapping[str, str] = _NO_HEADERS) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


class _Server(ThreadingHTTPServer):
    """The store.

    Args:
        objects: key -> content.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}


@contextmanager
def running() -> Iterator[dict[str, str]]:
    """A store that is there while the context lasts; yields the settings with which Spark reaches it."""
    server = _Server()
    threading.Thread(target=server.serve_forever, name="warm store", daemon=True).start()
    try:
        yield {
            "spark.hadoop.fs.s3a.endpoint": f"http://127.0.0.1:{server.server_address[1]}",
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": "key",
            "spark.hadoop.fs.s3a.secret.key": "secret",
        }
    finally:
        server.shutdown()
        server.server_close()


def _tag(content: bytes) -> str:
    return md5(content, usedforsecurity=False).hexdigest()


def _unchunked(content: bytes) -> bytes:
    """The content of a body in signed chunks: each begins with a line that has its length, and one of length 0 is the last."""
    parts, position = list[bytes](), 0
    while True:
        end = content.index(b"\r\n", position)
        length = int(content[position:end].partition(b";")[0], 16)
        if not length:
            return b"".join(parts)
        parts.append(content[end + 2 : end + 2 + length])
        position = end + 4 + length
