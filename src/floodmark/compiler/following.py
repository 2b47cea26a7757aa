"""Which streams can follow a rebuild of a stream that they read as a difference: rows that are taken back and new rows, of any event time.

Such a stream must take retractions, and its results must be a function of the rows it has read, whatever their event times and their order: what it has
closed or freed by event time cannot be revised any more.
"""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.compiler.paths import STATEFUL, Node, parents_of
from floodmark.spec.windowing.aggregates import ORDERED

_WITHOUT_STATE = {"read", "filter", "project", "flat_map", "union"}
_ROLLING = {"aggregates", "allowed_lateness", "groups", "keys", "late", "of", "step", "trigger", "uid", "window"}
"""Settings of aggregates over all rows so far; others, such as an order of rows, make the results depend on more than the rows."""
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
    if kind in _WITHOUT_STATE:
        return ""
    if kind not in STATEFUL:
        return f"it asks another system ({kind})"
    function = node.get("function") or {}
    if kind == "process" and function.get("name") == "regular_join":
        return "" if function["settings"]["ttl"] is None else f"join '{uid}' forgets rows by their event time"
    if kind != "window_aggregate" or node["window"]["kind"] != "Global" or node.get("trigger") != _EACH_ROW:
        return f"results of step '{uid}' depend on event time"
    if set(node) - _ROLLING:
        return f"results of step '{uid}' depend on more than its rows"
    for name, aggregate in node["aggregates"]:
        if "code" in aggregate:
            return f"aggregate '{name}' of step '{uid}' is one of its own"
        if aggregate["aggregate"] in ORDERED:
            return f"aggregate '{name}' of step '{uid}' depends on the order in which rows arrive"
    return ""


def _walk(step: Node) -> Iterator[Node]:
    yield step
    for parent in parents_of(step):
        yield from _walk(parent)
