"""A service on the loopback that answers numbers with their doubles, slowly and not always: GET /VALUE/KEY."""

from __future__ import annotations

import asyncio
import json
import threading
import zlib
from collections import Counter
from typing import Self


class Service:
    """A running service; ``with Service() as service``.

    Args:
        latency: seconds until an answer.
        failing: of 100 rows, how many are refused at their first call.
        broken: a value that is always refused.
    """

    def __init__(self, latency: float = 0.0, failing: int = 0, broken: int | None = None) -> None:
        self.latency, self.failing, self.broken = latency, failing, broken
        self.calls: Counter[str] = Counter()
        """Key of a request -> how often it has come."""
        self.order: list[int] = []
        """The values, as they came."""
        self.busy = self.busiest = 0
        self.reached = threading.Event()
        """Set with the call of number ``notify``."""
        self.notify = 0
        self.holds = False
        """Whether answers wait from that call on."""
        self._open = asyncio.Event()
        self._open.set()
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Self:
        started = threading.Event()
        threading.Thread(target=self._serve, args=(started,), daemon=True).start()
        assert started.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self, started: threading.Event) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._answer, "127.0.0.1", 0, backlog=1024))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self._loop.run_forever()

    def hold(self) -> None:
        """Let answers wait."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def release(self) -> None:
        """Send the answers that wait, and those to come."""
        self._loop.call_soon_threadsafe(self._open.set)

    def refuses(self, value: str) -> bool:
        """Whether the first call about a value is refused."""
        return zlib.crc32(value.encode()) % 100 < self.failing

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, value, key = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode().split("/")
        self.calls[key] += 1
        self.order.append(int(value))
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        if self.notify and self.calls.total() >= self.notify:
            if self.holds:
                self._open.clear()
                self.holds = False
            self.reached.set()
        await asyncio.sleep(self.latency)
        await self._open.wait()
        self.busy -= 1
        refused = self.calls[key] == 1 and self.refuses(value)
        status = "503 Busy" if refused or int(value) == self.broken else "200 OK"
        body = json.dumps({"doubled": 2 * int(value)})
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()


async def fetched(port: int, value: int, key: str) -> dict[str, int]:
    """The answer about a value."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET /{value}/{key} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    finally:
        writer.close()
    if " 200 " not in head:
        raise ConnectionError(head.partition("\r\n")[0])
    return json.loads(body)
