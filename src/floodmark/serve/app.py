"""The application: routes, and how answers and refusals are written."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from floodmark.core.errors import FloodmarkError
from floodmark.deliveries.documents import document
from floodmark.serve import openapi
from floodmark.serve.questions import Question, check_length, key_of, question
from floodmark.serve.readable import Readable
from floodmark.serve.refusals import Malformed, Missing, NotReady, Refusal, TooLarge, Unauthorized
from floodmark.serve.runs import Key
from floodmark.serve.service import Service
from floodmark.serve.snapshot import Snapshot
from floodmark.serve.tokens import Tokens

MOST_KEYS = 1_000
"""Most keys of a lookup."""
MOST_BYTES = 1_000_000
"""Most bytes of a body."""
_BODY_SECONDS = 10.0
AS_OF = "Floodmark-As-Of"
"""Header with the moment of an answer, as JSON."""

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(slots=True)
class Answers:
    """The handlers of the routes.

    Args:
        service: what answers.
        tokens: who may ask.
    """

    service: Service
    tokens: Tokens
    _threads: ThreadPoolExecutor = field(init=False, default_factory=lambda: ThreadPoolExecutor(2, "serve"))
    """For what takes longer than a look at some keys."""

    def app(self) -> Starlette:
        """The application."""
        routes = [
            Route("/live", self._live),
            Route("/", self._page),
            Route("/openapi.json", self._openapi),
            Route("/v1/outputs", self._guarded(self._outputs)),
            Route("/v1/outputs/{output}", self._guarded(self._rows)),
            Route("/v1/outputs/{output}/lookup", self._guarded(self._lookup), methods=["POST"]),
        ]
        handlers: Any = {HTTPException: _no_route, Exception: _unforeseen}
        return Starlette(routes=routes, exception_handlers=handlers)

    def _readables(self) -> list[Readable]:
        return [self.service.outputs[name] for name in self.service.copies]

    # ---- handlers

    async def _live(self, _: Request) -> Response:
        return Response("live\n", media_type="text/plain")

    async def _page(self, _: Request) -> Response:
        return HTMLResponse(openapi.page(openapi.description(self._readables())))

    async def _openapi(self, _: Request) -> Response:
        return _json(openapi.description(self._readables()))

    async def _outputs(self, _: Request) -> Response:
        now = time.time_ns() // 1_000_000
        outputs = []
        for name, copy in self.service.copies.items():
            described = openapi.output(self.service.outputs[name])
            snapshot = copy.snapshot
            described["as_of"] = None if snapshot is None else snapshot.as_of.as_json(now, copy.checked_at)
            outputs.append(described)
        return _json({"outputs": outputs})

    async def _rows(self, request: Request) -> Response:
        readable = self.service.output(request.path_params["output"])
        asked = question(readable, request.query_params.multi_items())
        if asked.cursor:
            cursor = self.service.cursor(asked.cursor, readable.name)
            return await self._paged(cursor.snapshot, cursor.lower, cursor.upper, asked)
        snapshot = self.service.snapshot(readable.name)
        if asked.is_point:
            row = snapshot.get(asked.lower)
            return self._answer(snapshot, {"rows": [] if row is None else [row], "next": None})
        return await self._paged(snapshot, asked.lower, asked.upper, asked)

    async def _paged(self, snapshot: Snapshot, lower: Key, upper: Key, asked: Question) -> Response:
        loop = asyncio.get_running_loop()
        rows, following = await loop.run_in_executor(self._threads, snapshot.page, lower, upper, asked.limit)
        cursor = None if following is None else self.service.next_page(snapshot, following, upper)
        return self._answer(snapshot, {"rows": rows, "next": cursor})

    async def _lookup(self, request: Request) -> Response:
        readable = self.service.output(request.path_params["output"])
        check_length(request.query_params.multi_items())
        keys = _keys(readable, await _body(request))
        snapshot = self.service.snapshot(readable.name)
        return self._answer(snapshot, {"rows": [snapshot.get(key) for key in keys]})

    def _answer(self, snapshot: Snapshot, content: dict[str, Any]) -> Response:
        checked = self.service.checked_at(snapshot.as_of.output)
        as_of = snapshot.as_of.as_json(time.time_ns() // 1_000_000, checked)
        return _json({**content, "as_of": as_of}, headers={AS_OF: json.dumps(as_of)})

    def _guarded(self, handler: Handler) -> Handler:
        """The handler behind the check of the token, with refusals as answers."""

        async def guarded(request: Request) -> Response:
            try:
                self.tokens.check(request.headers.get("Authorization"), time.time_ns() // 1_000_000)
                return await handler(request)
            except FloodmarkError as error:
                return refused(error)

        return guarded


def refused(error: FloodmarkError) -> Response:
    """The answer for an error: its parts as JSON, with the status of its kind."""
    status = error.status if isinstance(error, Refusal) else 500
    headers = {}
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = 'Bearer realm="floodmark"'
    if isinstance(error, NotReady):
        headers["Retry-After"] = "1"
    return _json({"error": error.as_json()}, status=status, headers=headers)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    fix = "See / for the paths and their parameters."
    missing = Missing(
        f"{request.method} {request.url.path[:200]}", "a path of the service", error.detail, fix, code="SERVE-014"
    )
    answer = refused(missing)
    answer.status_code = error.status_code
    return answer


async def _unforeseen(_: Request, error: Exception) -> Response:
    return _json({"error": {"code": "UNEXPECTED", "got": type(error).__name__}}, status=500)


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **(headers or {})}
    return Response(document(content), status, headers, "application/json")


async def _body(request: Request) -> bytes:
    """The body of a request.

    Raises:
        TooLarge: SERVE-015, more bytes than are read.
        Malformed: SERVE-016, it did not come in time.
    """
    content = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():
                content += chunk
                if len(content) > MOST_BYTES:
                    fix = "Ask for fewer keys at a time."
                    raise TooLarge("body", f"at most {MOST_BYTES} bytes", "more", fix, code="SERVE-015")
    except TimeoutError:
        expected = f"all of it within {_BODY_SECONDS:.0f} seconds"
        raise Malformed("body", expected, "a part", "Send it at once.", code="SERVE-016") from None
    return bytes(content)


def _keys(readable: Readable, body: bytes) -> list[Key]:
    fix = 'Send {"keys": [{"country": "NL", ...}, ...]}.'
    try:
        content = json.loads(body, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise Malformed("body", "JSON", str(error), fix, code="SERVE-017") from None
    keys = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(keys, list) or len(keys) > MOST_KEYS:
        got = f"{len(keys)} keys" if isinstance(keys, list) else "something else"
        raise Malformed("body", f"a list of at most {MOST_KEYS} keys", got, fix, code="SERVE-017")
    return [key_of(readable, key) for key in keys]
