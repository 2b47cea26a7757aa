"""Implementations by name: settings are plain data, and name what makes a reader or a sink of them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def implementation_of(name: str) -> Callable[..., Any] | None:
    """The callable that ``"module:callable"`` names, whose module is imported now; None if no callable is named."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute) if attribute else None
