"""Processes of pools that would start anew, forked: what they import is imported once, by multiprocessing's own server of forks.

A process that starts anew has the variables and the import path of its parent as they are by then; so have these.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.context import BaseContext, ForkServerContext, ForkServerProcess
from typing import Any

import forked
import forks_alone


class _Process(ForkServerProcess):
    """Takes the variables of its parent first."""

    def __init__(self, *, target: Callable[..., object], args: Sequence[Any] = (), **options: Any) -> None:
        super().__init__(target=_with, args=(dict(os.environ), target, tuple(args)), **options)


def _with(variables: dict[str, str], target: Callable[..., object], args: tuple[Any, ...]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    target(*args)


class _Forking(ForkServerContext):
    Process = _Process


def context(method: str | None = None) -> BaseContext:
    """As ``multiprocessing.get_context``; where a process would start anew, it is forked."""
    if method != "spawn" or not forked.FORKS:
        return multiprocessing.get_context(method)
    before = dict(os.environ)
    os.environ.update(forks_alone.ALONE)  # of the server, which starts with the first process
    try:
        found = _Forking()
        found.set_forkserver_preload([*forked.IMPORTED, "pytest", "forks_checked"])
        from multiprocessing import forkserver

        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return found
