"""A service of ``floodmark serve`` in this process, and questions to it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import small_lake
from events import Event

import floodmark as fm
from floodmark.lake.folder.paths import Lake
from floodmark.serve.server import serving
from floodmark.serve.service import Service
from floodmark.serve.tokens import Tokens
from floodmark.spec.values.secret import Secret

INSTANT = "2020-01-01T00:00:00Z"


@dataclass
class Asked:
    """What asks a service.

    Args:
        url: of the service.
        service: itself.
        token: sent with each question, if there is one.
    """

    url: str
    service: Service
    token: str = ""

    def raw(self, path: str, body: bytes | None = None, token: str | None = None) -> tuple[int, bytes, Any]:
        """(status, content, headers) of an answer."""
        token = self.token if token is None else token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(self.url + path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, error.read(), error.headers

    def get(self, path: str, parameters: Sequence[tuple[str, str]] = (), **more: Any) -> tuple[int, Any]:
        """(status, JSON) of an answer."""
        query = f"?{urlencode(parameters)}" if parameters else ""
        status, content, _ = self.raw(path + query, **more)
        return status, json.loads(content)

    def lookup(self, output: str, keys: list[dict[str, Any]]) -> tuple[int, Any]:
        """(status, JSON) of an answer about several keys."""
        status, content, _ = self.raw(f"/v1/outputs/{output}/lookup", json.dumps({"keys": keys}).encode())
        return status, json.loads(content)

    def until(self, output: str, commit: int) -> None:
        """Wait until the answers are of a commit."""
        end = time.monotonic() + 300
        copy = self.service.copies[output]
        while copy.snapshot is None or copy.snapshot.as_of.commit < commit:
            assert time.monotonic() < end, copy.snapshot
            time.sleep(0.01)


@contextmanager
def asked(
    workspace: fm.Workspace, lake: Lake, folder: Path, secrets: Sequence[Secret] = (), *, apart: bool = False
) -> Iterator[Asked]:
    """A service over a lake, at a free port."""
    service = Service(workspace, lake, folder, apart=apart)
    with serving(service, Tokens(list(secrets)), "127.0.0.1", 0) as url:
        yield Asked(url, service)


def small(folder: Path, *operators: Any) -> fm.Workspace:
    """A workspace of operators over events."""
    source = fm.Source(
        "events",
        contract=Event,
        connector=fm.Files(str(folder)),
        watermark=fm.BoundedOutOfOrderness("1 minute"),
    )
    settings = fm.Settings(lake=str(folder / "lake"), engine="embedded")
    return fm.Workspace(sources=[source], operators=[*operators] or [small_lake.TOTALS], settings=settings)


def key(name: str | None) -> list[tuple[str, str]]:
    """Parameters of a key of the small lake."""
    own = ("null", "key") if name is None else ("key.key", name)
    return [own, ("key.window_start", INSTANT), ("key.window_end", INSTANT)]


def totals(answer: dict[str, list[dict[str, int]]]) -> list[tuple[object, int]]:
    """(key, total) of each row."""
    return [(one["key"], one["total"]) for one in answer["rows"]]
