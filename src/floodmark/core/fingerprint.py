"""Canonical JSON and the digest of it: what makes two definitions the same."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import textwrap
from collections.abc import Callable
from typing import Any

from floodmark.core.errors import DefinitionError


def canonical(value: object) -> str:
    """JSON with sorted keys and no spaces; the same text for equal definitions on any machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: object) -> str:
    """SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def source_of(function: Callable[..., Any] | type) -> str:
    """The code of a function or class without comments, formatting and docstrings.

    Raises:
        DefinitionError: DEFINITION-003, the source cannot be read (typed at a prompt), so its changes could not be seen.
    """
    where = f"function '{getattr(function, '__qualname__', function)}'"
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        fix = "Define it in a module of your operators/ folder; its source is part of the version."
        raise DefinitionError(where, "readable source", "none", fix, code="DEFINITION-003") from None
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a lambda inside a larger expression: its surrounding lines have to do
        return text.strip()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            node.body = body[1:] or [ast.Pass()]  # type: ignore[attr-defined]  # checked to exist just above
    return ast.unparse(tree)
