"""Words for the steps of a graph, read off their canonical form: the same for a definition and for what a stream was started with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.core.fingerprint import hex_of
from floodmark.core.time import describe_span
from floodmark.spec.windowing.frames import Frame

Node = Mapping[str, Any]
"""A step, a window or an aggregate in its canonical form."""

_SPANS = frozenset({"size", "slide", "step", "gap", "offset", "longest"})


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


def over(measures: Sequence[Any]) -> str:
    """``total=sum(price) of 10 rows before, previous=lag(price, 1)``."""
    texts = []
    for name, form, frame in measures:
        if "position" in form:
            arguments = [str(form[part]) for part in ("expression", "n", "default") if part in form]
            texts.append(f"{name}={form['position']}({', '.join(arguments)})")
        else:
            texts.append(f"{name}={aggregate(form)} of {Frame(**frame).describe()}")
    return ", ".join(texts)


def ranking(form: Node) -> str:
    """``row_number 1 to 3 by price DESC``."""
    in_turn = "the last to come" if form["latest"] else "the first to come"
    return f"{form['numbering']} 1 to {form['n']} by {order_by(form['by']) or in_turn}"


def order_by(form: Sequence[Node]) -> str:
    """``price DESC, name NULLS LAST``."""
    order = []
    for by in form:
        usual = by["nulls_first"] != by["descending"]
        nulls = "" if usual else f" NULLS {'FIRST' if by['nulls_first'] else 'LAST'}"
        order.append(f"{by['column']}{' DESC' if by['descending'] else ''}{nulls}")
    return ", ".join(order)


def window(form: Node) -> str:
    """``Sliding(size=1 hour, slide=15 minutes)``; an offset of zero is left out."""
    kind, own = form["kind"], form.get("settings", {})
    settings = {name: value for name, value in form.items() if name not in {"kind", "code", "settings"}} | own
    spans = _SPANS if kind in {"Tumbling", "Sliding", "Cumulative", "Calendar", "Session"} else frozenset()
    texts = [
        f"{name}={describe_span(value) if name in spans and isinstance(value, int) else value}"
        for name, value in settings.items()
        if (name, value) != ("offset", 0)
    ]
    return f"{kind}({', '.join(texts)})"


def interval(bounds: tuple[int, int] | list[int]) -> str:
    """``from -1 hour to 15 minutes``: how much later the right row is."""
    return f"from {describe_span(bounds[0])} to {describe_span(bounds[1])}"


def pattern(form: Node) -> str:
    """``begin(small) next(large) times 2 within 10 minutes``; conditions in brackets."""
    parts = [_stage(stage) for stage in form["stages"]]
    return " ".join(parts) + (f" within {describe_span(form['within'])}" if "within" in form else "")


def _stage(form: Node) -> str:
    """A stage with its condition and quantifier: ``next(large [amount > 500]) times 2 optional``."""
    inside = pattern(form["group"]) if "group" in form else form["name"]
    text = f"{form['contiguity']}({inside}{_condition(' [', form.get('condition'), ']')})"
    least, most = form.get("least", 1), form.get("most", 1)
    if (least, most) != (1, 1):
        text += f" times {least}" + (" or more" if most is None else f" to {most}" if most != least else "")
    text += "".join(f" {word}" for word in ("optional", "greedy") if form.get(word))
    text += f" {form['repetition']}" if "repetition" in form else ""
    text += _condition(" until [", form.get("until"), "]")
    return text + (f" within {describe_span(form['gap'])} of the previous row" if "gap" in form else "")


def _condition(before: str, form: Any, behind: str) -> str:
    match form:
        case None:
            return ""
        case [operator, left, right]:
            return f"{before}{_condition('', left, '')} {operator} {_condition('', right, '')}{behind}"
        case {"code": code}:
            return f"{before}code {hex_of(code)[:8]}{behind}"
        case _:
            return f"{before}{form}{behind}"


def row_pattern(form: Node) -> str:
    """``A B+ C within 10 minutes, one row per match, then past``."""
    strategy, labels = form["skip"]
    where = (
        f"{strategy} {', '.join(labels)}"
        if labels
        else {"past": "past the last row", "next": "at the next row"}[strategy]
    )
    within = f" within {describe_span(form['within'])}" if "within" in form else ""
    return f"{form['pattern']}{within}, rows per match: {form['rows']}, the next match begins {where}"


def selected(outputs: Node) -> str:
    """``first=first(a.amount), n=count(b); timed_out: first=a.amount``."""
    texts = []
    for name, form in outputs.items():
        own = ", ".join(f"{column}={text}" for column, text in form.get("measures", ()))
        own = own or f"code {hex_of(form['code'])[:8]}"
        texts.append(f"{name}: {own}" if name else own)
    return "; ".join(texts)


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
