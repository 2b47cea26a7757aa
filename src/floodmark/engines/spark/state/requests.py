"""Reads and writes of a map state of Spark's, many requests in a row before their answers are read.

PySpark waits for the answer to each request, which costs two changes of process each time. The other side, in Java, reads request after
request from a stream and answers them in order, so that requests may wait there. PySpark has no public call for this.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming.proto import StateMessage_pb2 as messages

Key = tuple[Any, ...]
Value = tuple[Any, ...]

LOT = 64
"""Requests before their answers are read: they all fit into the buffer of a socket, so that neither side waits for the other to read."""


class MapRequests:
    """Requests to one map state.

    Args:
        state: Spark's, of keys and values of plain numbers and bytes, which ``pickle`` writes as PySpark's own pickler does, in a tenth of the time.
    """

    def __init__(self, state: Any) -> None:
        own = state._mapStateClient  # noqa: SLF001 - see above
        self.name = state._stateName  # noqa: SLF001 - see above
        self.client = own._stateful_processor_api_client  # noqa: SLF001 - see above

    def values(self, keys: Sequence[Key]) -> Iterator[Value | None]:
        """The value of each key, in order; None where there is none."""
        for answer in self._answers([{"getValue": messages.GetValue(userKey=self._key(key))} for key in keys]):
            yield self.client._deserialize_from_bytes(answer) if answer else None  # noqa: SLF001 - see above

    def update(self, values: Sequence[tuple[Key, Value | None]]) -> None:
        """Write values; None removes the key."""
        calls = []
        for key, value in values:
            name = self._key(key)
            if value is None:
                calls.append({"removeKey": messages.RemoveKey(userKey=name)})
            else:
                data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
                calls.append({"updateValue": messages.UpdateValue(userKey=name, value=data)})
        self._answers(calls)

    def _key(self, key: Key) -> bytes:
        return pickle.dumps(key, pickle.HIGHEST_PROTOCOL)

    def _answers(self, calls: Sequence[dict[str, Any]]) -> list[bytes]:
        """The values in the answers to some calls."""
        answers: list[bytes] = []
        for first in range(0, len(calls), LOT):
            lot = calls[first : first + LOT]
            for call in lot:
                request = messages.StateVariableRequest(mapStateCall=messages.MapStateCall(stateName=self.name, **call))
                data = messages.StateRequest(stateVariableRequest=request).SerializeToString()
                self.client.sockfile.write(_HEAD.pack(0, len(data)) + data)
            self.client.sockfile.flush()
            responses = [self.client._receive_proto_message() for _ in lot]  # noqa: SLF001 - see above
            failed = next((text for status, text, _ in responses if status != 0), None)
            if failed is not None:
                msg = f"state '{self.name}': {failed}"
                raise PySparkRuntimeError(msg)
            answers += [value for _, _, value in responses]
        return answers


_HEAD = struct.Struct(">ii")
"""Version of the messages, which is 0, and bytes of this one."""
