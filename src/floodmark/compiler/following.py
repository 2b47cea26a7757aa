"""Which streams can follow a rebuild of a stream that they read as a difference: rows that are taken back and new rows, of any event time.

Such a stream must take retractions, and its results must be a function of the rows it has read, whatever their event times and their order: what it has
closed or freed by event time cannot be revised any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from floodmark.compiler.paths import STATEFUL, Node, parents_of
from floodmark.spec.expressions.functions import classified
from floodmark.spec.windowing.aggregates import ORDERED

_WITHOUT_STATE = {"read", "filter", "project", "flat_map", "union"}
_ROLLING = {"aggregates", "allowed_lateness", "groups", "keys", "late", "of", "step", "trigger", "uid", "window"}
"""Settings of aggregates over all rows so far; others, such as an order of rows, make the results depend on more than the rows."""
_NO_EXPRESSIONS = {"of", "schema", "function", "uid", "step", "input"}
"""Settings of steps that hold no SQL."""
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'")
_CALL = re.compile(r"\b([a-z_]\w*)\s*\(\s*(\)?)|\b(current_(?:date|time|timestamp))\b", re.IGNORECASE)
_EACH_ROW = {"n": 1, "trigger": "AfterCount"}


def obstacle(graph: Node) -> str:
    """Why results depend on more than the set of the rows that were read, for people; empty if they do not.

    Args:
        graph: of an operator, in its canonical form.
    """
    return next((reason for _, step in graph["outputs"] for node in _walk(step) if (reason := _obstacle(node))), "")


def _obstacle(node: Node) -> str:
    kind, uid = node["step"], node.get("uid", "")
    if node.get("on_error") == "quarantine" or kind == "expect":
        return "it sets rows aside, which are never taken back"
    called = _called([value for field, value in node.items() if field not in _NO_EXPRESSIONS])
    impure = next((name for name in called if classified(name) == "impure"), None)
    if impure is not None:
        return f"{impure}() has another value for a row that is taken back"
    if kind in _WITHOUT_STATE:
        return ""
    if kind not in STATEFUL:
        return f"it asks another system ({kind})"
    function = node.get("function") or {}
    if kind == "process" and function.get("name") == "regular_join":
        return "" if function["settings"]["ttl"] is None else f"join '{uid}' forgets rows by their event time"
    if kind != "window_aggregate" or node["window"]["kind"] != "Global" or node.get("trigger") != _EACH_ROW:
        return f"results of step '{uid}' depend on event time"
    return _of_aggregates(node, uid)


def _of_aggregates(node: Node, uid: str) -> str:
    if set(node) - _ROLLING:
        return f"results of step '{uid}' depend on more than its rows"
    for name, aggregate in node["aggregates"]:
        if "code" in aggregate:
            return f"aggregate '{name}' of step '{uid}' is one of its own"
        if aggregate["aggregate"] in ORDERED:
            return f"aggregate '{name}' of step '{uid}' depends on the order in which rows arrive"
    return ""


def _called(value: Any) -> Iterator[str]:
    """Names of the functions in the SQL of a step's settings."""
    if isinstance(value, str):
        for name, empty, bare in _CALL.findall(_QUOTED.sub("", value)):
            if (name or bare).lower() != "unix_timestamp" or empty:  # of a text it is no clock
                yield (name or bare).lower()
        return
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for setting in inner:
        yield from _called(setting)


def _walk(step: Node) -> Iterator[Node]:
    yield step
    for parent in parents_of(step):
        yield from _walk(parent)
