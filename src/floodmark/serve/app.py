"""The application: routes, and how answers and refusals are written."""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from floodmark.core.errors import FloodmarkError
from floodmark.deliveries.documents import document
from floodmark.serve import openapi
from floodmark.serve.bulk import MEDIA, pieces
from floodmark.serve.keyed_state import CommittedState
from floodmark.serve.questions import Question, key_of, question
from floodmark.serve.readable import Readable
from floodmark.serve.refusals import Gone, Malformed, Missing, NotReady, Refusal, TooLarge, Unauthorized
from floodmark.serve.runs import Key
from floodmark.serve.service import Service
from floodmark.serve.snapshot import Snapshot
from floodmark.serve.streamed import Streamed
from floodmark.serve.tokens import Tokens

MOST_KEYS = 1_000
"""Most keys of a lookup."""
MOST_BYTES = 1_000_000
"""Most bytes of a body."""
_BODY_SECONDS = 10.0
AS_OF = "Floodmark-As-Of"
"""Header with the moment of an answer, as JSON."""

MOST_BULKS = 4
"""Most bulk answers at a time; each has a DuckDB of its own."""
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
Result = TypeVar("Result")
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
    _bulks: int = field(init=False, default=0)

    def app(self) -> Starlette:
        """The application."""
        routes = [
            Route("/live", self._live),
            Route("/", self._guarded(self._page)),
            Route("/openapi.json", self._guarded(self._openapi)),
            Route("/v1/outputs", self._guarded(self._outputs)),
            Route("/v1/outputs/{output}", self._guarded(self._rows)),
            Route("/v1/outputs/{output}/bulk", self._guarded(self._bulk)),
            Route("/v1/state", self._guarded(self._states)),
            Route("/v1/state/{operator}", self._guarded(self._state)),
            Route("/v1/outputs/{output}/lookup", self._guarded(self._lookup), methods=["POST"]),
        ]
        handlers: Any = {HTTPException: _no_route, Exception: self._unforeseen}
        return Starlette(routes=routes, exception_handlers=handlers)

    def _readables(self) -> list[Readable]:
        return [self.service.outputs[name] for name in self.service.copies]

    # ---- handlers

    async def _live(self, _: Request) -> Response:
        return Response("live\n", media_type="text/plain")

    async def _page(self, _: Request) -> Response:
        return HTMLResponse(openapi.page(openapi.description(self._readables(), self.service.states.values())))

    async def _openapi(self, _: Request) -> Response:
        return _json(openapi.description(self._readables(), self.service.states.values()))

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
        _check_json(readable.name, asked)
        if asked.cursor:
            cursor = self.service.cursor(asked.cursor, readable.name)
            assert isinstance(cursor.snapshot, Snapshot)
            return await self._paged(cursor.snapshot, cursor.lower, cursor.upper, asked)
        snapshot = await self._snapshot(readable, asked.savepoint)
        if asked.is_point:
            row = snapshot.get(asked.lower)
            return self._answer(snapshot, {"rows": [] if row is None else [row], "next": None})
        return await self._paged(snapshot, asked.lower, asked.upper, asked)

    async def _snapshot(self, readable: Readable, savepoint: str) -> Snapshot:
        if not savepoint:
            return self.service.snapshot(readable.name)
        return await self._in_thread(self.service.snapshot, readable.name, savepoint)

    async def _paged(self, snapshot: Snapshot, lower: Key, upper: Key, asked: Question) -> Response:
        rows, following = await self._in_thread(snapshot.page, lower, upper, asked.limit)
        cursor = None if following is None else self.service.next_page(snapshot, following, upper)
        return self._answer(snapshot, {"rows": rows, "next": cursor})

    async def _lookup(self, request: Request) -> Response:
        readable = self.service.output(request.path_params["output"])
        parameters = request.query_params.multi_items()
        asked = question(readable, [one for one in parameters if one[0] == "as_of"])
        keys = _keys(readable, await _body(request))
        snapshot = await self._snapshot(readable, asked.savepoint)
        return self._answer(snapshot, {"rows": [snapshot.get(key) for key in keys]})

    async def _bulk(self, request: Request) -> Response:
        readable = self.service.output(request.path_params["output"])
        asked = question(readable, request.query_params.multi_items())
        snapshot = await self._snapshot(readable, asked.savepoint)
        if self._bulks >= MOST_BULKS:
            fix = "Ask again when one has ended."
            got = f"{self._bulks} at work"
            raise NotReady(f"'{readable.name}', bulk", f"at most {MOST_BULKS} at a time", got, fix, code="SERVE-028")
        as_of = self._as_of(snapshot)
        folder = self.service.folder
        others = pieces(readable, snapshot, asked.lower, asked.upper, asked.format, as_of, folder)
        self._bulks += 1
        try:
            first = await self._in_thread(next, others, b"")
        except BaseException:
            self._end_bulk()
            raise
        headers = {**_HEADERS, AS_OF: json.dumps(as_of)}
        return Streamed(first, others, self._threads, MEDIA[asked.format], headers, self._end_bulk)

    def _end_bulk(self) -> None:
        self._bulks -= 1

    async def _states(self, _: Request) -> Response:
        return _json({"states": [openapi.state(of) for of in self.service.states.values()]})

    async def _state(self, request: Request) -> Response:
        of = self.service.stateful(request.path_params["operator"])
        asked = question(of, request.query_params.multi_items())
        _check_json(of.name, asked)
        if asked.cursor:
            cursor = self.service.cursor(asked.cursor, f"state of {of.name}")
            assert isinstance(cursor.snapshot, CommittedState)
            try:
                return await self._in_thread(self._state_page, asked, cursor.lower, cursor.upper, cursor.snapshot)
            except FileNotFoundError:
                fix = "Ask for the first page again; the pages of a savepoint stay."
                got = "one that the stream has replaced"
                where = f"state of '{of.name}', cursor"
                raise Gone(where, "a micro-batch that is retained", got, fix, code="SERVE-029") from None
        answer = partial(self._state_page, asked, asked.lower, asked.upper)
        return await self._in_thread(self.service.state, of.name, asked.savepoint, answer)

    def _state_page(self, asked: Question, lower: Key, upper: Key, state: CommittedState) -> Response:
        if asked.is_point and not asked.cursor:
            row = state.get(lower)
            rows, following = [] if row is None else [row], None
        else:
            rows, following = state.page(lower, upper, asked.limit)
        cursor = None if following is None else self.service.next_page(state, following, upper)
        as_of = state.as_json(time.time_ns() // 1_000_000)
        return _json({"rows": rows, "next": cursor, "as_of": as_of}, headers={AS_OF: json.dumps(as_of)})

    async def _unforeseen(self, request: Request, error: Exception) -> Response:
        """The answer for an exception that nobody foresaw; what it is, is for those who run the service alone."""
        where, kind = f"{request.method} {request.url.path[:200]}", type(error).__name__
        self.service.say("".join([f"{where}: ", *traceback.format_exception(error)]).rstrip())
        fix = "The service has written where it happened: tell those who run it."
        about = {"code": "UNEXPECTED", "where": where, "expected": "an answer", "got": kind, "fix": fix}
        return _json({"error": about}, status=500)

    async def _in_thread(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def _as_of(self, snapshot: Snapshot) -> dict[str, Any]:
        return snapshot.as_of.as_json(time.time_ns() // 1_000_000, self.service.checked_at(snapshot.as_of.output))

    def _answer(self, snapshot: Snapshot, content: dict[str, Any]) -> Response:
        as_of = self._as_of(snapshot)
        return _json({**content, "as_of": as_of}, headers={AS_OF: json.dumps(as_of)})

    def _guarded(self, handler: Handler) -> Handler:
        """The handler behind the check of the token, with refusals as answers."""

        async def guarded(request: Request) -> Response:
            try:
                self.tokens.check(request.headers.get("Authorization"), time.time_ns() // 1_000_000)
                self.tokens.check_host(request.headers.get("Host", ""))
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


def _check_json(name: str, asked: Question) -> None:
    """Refuse another format than JSON.

    Raises:
        Malformed: SERVE-030.
    """
    if asked.format != "json":
        fix = f"Ask for all of it: /v1/outputs/{name}/bulk?format={asked.format}."
        raise Malformed(f"'{name}', format", "json for keys and pages", asked.format, fix, code="SERVE-030")


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    fix = "See / for the paths and their parameters."
    missing = Missing(
        f"{request.method} {request.url.path[:200]}", "a path of the service", error.detail, fix, code="SERVE-014"
    )
    answer = refused(missing)
    answer.status_code = error.status_code
    return answer


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(document(content), status, {**_HEADERS, **(headers or {})}, "application/json")


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
