"""The base of kernels that send net changes: once the rows of a call are in, each key that they touch emits what they make of its results."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NoReturn

from floodmark.core.errors import UserCodeError
from floodmark.semantics.kernels.arrivals import Arrivals
from floodmark.semantics.kernels.kernel import Tick
from floodmark.semantics.kernels.keyed import KeyedKernel


class NetKernel(KeyedKernel):
    """One key group of a stage whose results are those of the rows so far, whatever their stamps: no row waits for the clock, and none fires a timer."""

    acyclic = True

    def _arrive(self, arrivals: Arrivals) -> None:
        """Make ready the rows of a call, some of which come to ``_take`` by their positions."""

    @abstractmethod
    def _take(self, key_state: Any, position: int, time: int, stamp: int) -> None:
        """Change the state of a key by a row, or by a retraction of one."""

    @abstractmethod
    def _send(self, key_state: Any) -> None:
        """Emit what the rows of the call make of the results of a key: retractions first, and none that a row of equal values undoes."""

    def _refuse(self, key_state: Any, position: int, error: Exception) -> NoReturn:  # noqa: ARG002 - for subclasses
        """Raise for a row that cannot be computed."""
        raise error

    def _rows_and_ticks(self, arrivals: Arrivals, start: int, stop: int, moves: list[tuple[int, Tick]]) -> None:  # noqa: ARG002 - no clock
        self._expect(arrivals, start, stop)
        self._arrive(arrivals)
        keys, times, stamps, key_state, position = arrivals.keys, arrivals.times, arrivals.stamps, None, start
        try:
            for position in range(start, stop):
                key_state = self._key(keys[position])
                self._take(key_state, position, times[position], stamps[position])
            self.arrived += stop - start
            for key_state in self.keys.values():
                self._send(key_state)
                self._wait(key_state)
        except UserCodeError as error:
            raise error.inside(self._about(key_state)) from error.__cause__
        except (ArithmeticError, ValueError, TypeError) as error:
            self._refuse(key_state, position, error)

    def _element(self, key_state: Any, position: int, time: int, stamp: int, values: tuple[Any, ...], row: Any) -> None:  # noqa: ARG002 - the base's
        self._take(key_state, position, time, stamp)

    def _wait(self, key_state: Any) -> None:
        """Nothing: no key waits for time."""

    def _fire(self, key_state: Any, progress: int) -> None:
        """Nothing: as above."""

    def _tick(self, key_state: Any) -> None:
        """Nothing: as above."""
