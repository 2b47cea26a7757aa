"""Imports of Spark Connect in several threads at once: the answer of its test utilities is there until the last one is done. A session is that of its thread within a block."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest

from floodmark.engines.frames import client
from floodmark.engines.frames.client import importable


def test_the_answer_stays_until_the_last_thread_has_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, client._ASKED, raising=False)
    entered, leave = threading.Event(), threading.Event()

    def beside() -> None:
        with importable():
            entered.set()
            assert leave.wait(60)

    with ThreadPoolExecutor(1) as pool:
        with importable():
            other = pool.submit(beside)
            assert entered.wait(60)
        assert sys.modules[client._ASKED].should_test_connect is True
        leave.set()
        other.result()
    assert client._ASKED not in sys.modules


def test_the_real_module_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ModuleType(client._ASKED)
    monkeypatch.setitem(sys.modules, client._ASKED, real)
    with importable():
        assert sys.modules[client._ASKED] is real
    assert sys.modules[client._ASKED] is real


def test_a_session_is_that_of_its_thread_within_a_block() -> None:
    """The client asks which one it is where a server holds rows for it, as those of a replay."""
    with importable():
        from pyspark.sql.connect.session import SparkSession
    before = getattr(SparkSession._active_session, "session", None)
    one, other = (SparkSession.__new__(SparkSession) for _ in range(2))
    with client.active(one):
        with client.active(other):
            assert SparkSession._active_session.session is other
        assert SparkSession._active_session.session is one
    assert SparkSession._active_session.session is before
    with client.active(object()):  # of a driver in this process
        assert SparkSession._active_session.session is before
