"""Words for the steps of a graph, read off their canonical form: the same for a definition and for what a stream was started with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from floodmark.core.fingerprint import hex_of
from floodmark.core.time import describe_span

Node = Mapping[str, Any]
"""A step, a window or an aggregate in its canonical form."""

_SPANS = frozenset({"size", "slide", "gap", "offset", "longest"})


def describe(step: Node, function: str = "") -> str:
    """A step in one line: ``filter items > 0``, ``aggregate total=sum(cents)``.

    Args:
        step: in its canonical form.
        function: the name of its function, where it is at hand; the canonical form has its code alone.
    """
    named = f" {function}" if function else ""
    match step["step"]:
        case "read":
            text = f"read {step['input']}"
        case "filter":
            text = f"filter {step['condition']}"
        case "expect":
            text = "expect " + ", ".join(f"{name}: {text}" for name, text, _ in step["expectations"])
        case "project":
            text = "columns " + ", ".join(name if name == sql else f"{name}={sql}" for name, sql, _ in step["columns"])
        case "flat_map":
            code = f" with code {hex_of(step['code'])[:8]}" if "code" in step else ""
            text = f"flat_map{named or code}"
        case "union":
            text = f"union of {len(step['of'])} streams"
        case "window_aggregate" if "function" in step:
            over = f" over {measures(step)}" if step["aggregates"] else ""
            text = f"{'reduce' if step['function']['reduces'] else 'process'}{named}{over}"
        case "window_aggregate":
            text = f"aggregate {measures(step)}"
        case "interval_join":
            text = f"interval join ({step['kind']}) {interval(step['interval'])}"
        case _:
            text = f"{step['step']}{named}"
    return f"{text} on_error={step['on_error']}" if "on_error" in step else text


def measures(step: Node) -> str:
    """``total=sum(cents), n=count()``."""
    return ", ".join(f"{name}={aggregate(form)}" for name, form in step["aggregates"])


def aggregate(form: Node) -> str:
    """``max_by(shop, cents)``."""
    arguments = [str(form[name]) for name in ("expression", "by", "n") if form.get(name) is not None]
    return f"{form['aggregate']}({', '.join(arguments)})"


def window(form: Node) -> str:
    """``Sliding(size=1 hour, slide=15 minutes)``; an offset of zero is left out."""
    kind, own = form["kind"], form.get("settings", {})
    settings = {name: value for name, value in form.items() if name not in {"kind", "code", "settings"}} | own
    spans = _SPANS if kind in {"Tumbling", "Sliding", "Calendar", "Session"} else frozenset()
    texts = [
        f"{name}={describe_span(value) if name in spans and isinstance(value, int) else value}"
        for name, value in settings.items()
        if (name, value) != ("offset", 0)
    ]
    return f"{kind}({', '.join(texts)})"


def interval(bounds: tuple[int, int] | list[int]) -> str:
    """``from -1 hour to 15 minutes``: how much later the right row is."""
    return f"from {describe_span(bounds[0])} to {describe_span(bounds[1])}"


def setting(name: str, value: Any) -> str:
    """A setting of a stateful step as text; empty if the step does not have it."""
    match name, value:
        case _, None:
            return ""
        case "keys", _:
            return f"key_by({', '.join(value)})"
        case "window", _:
            return window(value)
        case "interval", _:
            return interval(value)
        case "allowed_lateness", _:
            return f"allowed_lateness={describe_span(value)}"
        case "trigger" | "evictor", _:
            return f"{name} {value.get(name) or value.get('kind')}"
        case _:
            return f"{name}={value}"
