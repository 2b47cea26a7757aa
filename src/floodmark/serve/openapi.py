"""What can be asked, as OpenAPI and as a page of plain HTML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from importlib.metadata import version
from typing import Any

from floodmark.serve.keyed_state import Stateful
from floodmark.serve.questions import Keyed
from floodmark.serve.readable import Readable

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:1.5rem auto;max-width:60rem;padding:0 1rem;color:#222}"
    "code,pre{background:#f6f6f6}pre{padding:.7rem;overflow-x:auto;font-size:13px}h2{font-size:1.1rem;margin:1.6rem 0 .2rem}"
    "td,th{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}table{border-collapse:collapse;font-size:14px}"
)
_JSON = "application/json"


def output(readable: Readable) -> dict[str, Any]:
    """An output, for people and programs: its key and its columns."""
    columns = readable.output.schema.columns
    return {
        "output": readable.name,
        "operator": readable.operator.name,
        "key": [{"name": key.name, "type": str(key.type)} for key in readable.keys],
        "columns": [{"name": c.name, "type": c.type, "description": c.description} for c in columns],
    }


def state(of: Stateful) -> dict[str, Any]:
    """The state of an operator, for people and programs: its key, and what is kept of each."""
    layout: Mapping[str, Any] = of.step.function.function.layout()
    return {
        "operator": of.name,
        "key": [{"name": key.name, "type": str(key.type)} for key in of.keys],
        "state": {name: {"state": form["state"], "type": form["type"]} for name, form in layout.items()},
    }


def description(outputs: Iterable[Readable], states: Iterable[Stateful]) -> dict[str, Any]:
    """The service as OpenAPI 3.1."""
    paths: dict[str, Any] = {
        "/v1/outputs": {"get": _operation("The outputs that can be asked, and how far each is", [])}
    }
    for readable in outputs:
        path = f"/v1/outputs/{readable.name}"
        summary = readable.operator.description.partition("\n")[0] or f"Results of {readable.operator.name}"
        paths[path] = {
            "get": _operation(
                f"{summary}: by key, or by the first columns of the key and a range", _parameters(readable)
            )
        }
        bulk = _operation("All of them, or those of a range, at one commit", [*_parameters(readable), _FORMAT])
        paths[f"{path}/bulk"] = {"get": bulk}
        lookup = _operation("Several keys at one commit", [_SAVEPOINT])
        lookup["requestBody"] = {"required": True, "content": {_JSON: {"schema": _keys(readable)}}}
        paths[f"{path}/lookup"] = {"post": lookup}
    paths["/v1/state"] = {"get": _operation("The process functions whose state can be asked", [])}
    for of in states:
        summary = f"State of {of.name} by key, or by the first columns of the key and a range"
        paths[f"/v1/state/{of.name}"] = {"get": _operation(summary, _parameters(of))}
    return {
        "openapi": "3.1.0",
        "info": {"title": "floodmark serve", "version": version("floodmark")},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def page(described: dict[str, Any]) -> str:
    """OpenAPI as HTML that loads nothing from elsewhere."""
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>floodmark serve</title><style>{_STYLE}</style>",
        '<h1>floodmark serve</h1><p>As OpenAPI: <a href="/openapi.json">/openapi.json</a></p>',
    ]
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}</p>")
            rows = [
                f"<tr><td><code>{escape(one['name'])}</code></td><td>{escape(one['description'])}</td></tr>"
                for one in operation["parameters"]
            ]
            parts.append(f"<table>{''.join(rows)}</table>" if rows else "")
            body = operation.get("requestBody")
            parts.append(f"<pre>{escape(json.dumps(body['content'][_JSON]['schema'], indent=1))}</pre>" if body else "")
    return "\n".join(parts)


def _operation(summary: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    answer = {"description": "The answer, with the commit it is of", "content": {_JSON: {"schema": {"type": "object"}}}}
    refusal = {"description": "Why there is no answer", "content": {_JSON: {"schema": {"type": "object"}}}}
    return {"summary": summary, "parameters": parameters, "responses": {"200": answer, "default": refusal}}


def _parameters(keyed: Keyed) -> list[dict[str, Any]]:
    parameters = []
    for key in keyed.keys:
        for kind, summary in (
            ("key", "equal to"),
            ("from", "a range: this value or greater"),
            ("to", "a range: less than this value"),
        ):
            parameters.append(_parameter(f"{kind}.{key.name}", f"{key.type}, {summary}", {"type": "string"}))
    names = {"type": "array", "items": {"enum": [key.name for key in keyed.keys]}}
    parameters += [
        _SAVEPOINT,
        _parameter("null", "key column that is null", names),
        _parameter("limit", "most rows of a page, 1 to 10,000; 1,000 by default", {"type": "integer"}),
        _parameter("cursor", "next of the page before", {"type": "string"}),
    ]
    return parameters


def _parameter(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


_SAVEPOINT = _parameter("as_of", "name of a savepoint; the last commit by default", {"type": "string"})
_FORMAT = _parameter("format", "json (lines), arrow (a stream) or parquet", {"enum": ["json", "arrow", "parquet"]})


def _keys(readable: Readable) -> dict[str, Any]:
    value = {"type": ["string", "number", "boolean", "null"]}
    key = {
        "type": "object",
        "properties": {one.name: {**value, "description": str(one.type)} for one in readable.keys},
        "required": list(readable.key_names),
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {"keys": {"type": "array", "maxItems": 1000, "items": key}},
        "required": ["keys"],
    }
