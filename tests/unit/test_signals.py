"""What signals set, whatever the main thread is doing when they come."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.signals import stopping
from floodmark.control.processes import driver


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The handlers of before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_within_the_lock_of_an_event_sets_it(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    """``Event.wait`` holds the lock when it begins and when it ends."""
    with stopping(Console(as_json=False), "this look") as stop:
        with stop._cond:
            signal.raise_signal(number)
        assert stop.wait(60)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert f"{number.name}: stopping after this look; once more aborts" in capsys.readouterr().err


def test_a_driver_stops_by_a_signal_that_comes_within_the_lock_of_its_event() -> None:
    stop = threading.Event()
    driver._stop_at(stop)
    with stop._cond:
        signal.raise_signal(signal.SIGTERM)
    assert stop.wait(60)
