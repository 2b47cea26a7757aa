"""Answers that are sent in pieces, as fast as the client reads them. A client that stops reading is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from typing import Any

from starlette.responses import Response

_SEND_SECONDS = 30.0
"""Longest time in which a client reads a piece."""


class Streamed(Response):
    """An answer in pieces, which are made in a thread.

    Args:
        first: the first piece.
        others: the pieces behind it.
        threads: where pieces are made.
        media: type of the content.
        headers: of the answer.
        on_end: called once the answer is sent, or left.
    """

    def __init__(
        self,
        first: bytes,
        others: Iterator[bytes],
        threads: Executor,
        media: str,
        headers: Mapping[str, str],
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(None, 200, dict(headers), media)
        del self.headers["content-length"]
        self._first, self._others, self._threads, self._on_end = first, others, threads, on_end

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002 - as of ASGI
        """Send the pieces.

        Raises:
            TimeoutError: the client reads nothing; the connection ends with it.
        """
        loop, left = asyncio.get_running_loop(), asyncio.ensure_future(_gone(receive))
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            piece: bytes | None = self._first
            while piece is not None and not left.done():
                async with asyncio.timeout(_SEND_SECONDS):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                piece = await loop.run_in_executor(self._threads, next, self._others, None)
            if piece is None:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            left.cancel()
            await loop.run_in_executor(self._threads, _close, self._others)
            self._on_end()


async def _gone(receive: Any) -> None:
    """Ends when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _close(pieces: Any) -> None:
    pieces.close()
