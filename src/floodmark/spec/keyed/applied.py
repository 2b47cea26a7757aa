"""Functions of the user that statements call by name: ``function`` marks one, ``Applied`` calls it for each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, get_args, get_type_hints, overload

from attrs import frozen

from floodmark.core.errors import DefinitionError
from floodmark.spec.rows.checks import columns_of
from floodmark.spec.rows.contract import Contract
from floodmark.spec.rows.kinds import Kind
from floodmark.spec.values.schema import Column

_MARK = "__floodmark_function__"
Marked = TypeVar("Marked", bound=Callable[..., Any])


@frozen
class Signature:
    """What a function returns: a value, or rows.

    Args:
        returns: Spark SQL type of the value; empty for rows.
        columns: of the rows.
    """

    returns: str = ""
    columns: tuple[Column, ...] = ()


@overload
def function(call: Marked, /) -> Marked: ...
@overload
def function(*, returns: object = None, schema: type[Contract] | None = None) -> Callable[[Marked], Marked]: ...


def function(call: Any = None, /, *, returns: object = None, schema: type[Contract] | None = None) -> Any:
    """Mark a Python function as one that statements call by its name, and ``apply`` in Python. The function itself stays as it is.

    Example: ``@fm.function`` over ``def slug(title: str) -> str``, then ``SELECT slug(title) AS slug FROM books``

    Args:
        call: of the values of its arguments alone; called row by row, in the workers of both engines. Null comes as None.
        returns: type of the value, as of a contract; by default the one that it is annotated to return.
        schema: contract of the rows of a table function, which yields any number of dictionaries: ``LATERAL TABLE(words(text)) AS w(word)``.

    Raises:
        DefinitionError: DEFINITION-051, no function, or one whose result has no type.
    """
    if call is None:
        return lambda marked: _marked(marked, returns, schema)
    return _marked(call, returns, schema)


def _marked(call: Any, returns: object, schema: type[Contract] | None) -> Any:
    name = getattr(call, "__name__", repr(call))
    where = f"function '{name}'"
    if not callable(call) or isinstance(call, type):
        raise DefinitionError(where, "a function", repr(call), "Write @fm.function over a def.", code="DEFINITION-051")
    if schema is not None:
        signature = Signature(columns=columns_of(schema, where, "schema=Word, where Word is a Contract.").columns)
    else:
        kind = returns if returns is not None else _returned(call)
        if kind is None:
            fix = "Annotate what it returns, def slug(title: str) -> str; or write @fm.function(returns=str)."
            raise DefinitionError(where, "the type of its result", "none", fix, code="DEFINITION-051")
        signature = Signature(returns=Kind.of(kind, where).text)
    setattr(call, _MARK, signature)
    return call


def _returned(call: Any) -> object:
    """What a function is annotated to return, without None; None for nothing."""
    hint = get_type_hints(call).get("return")
    parts = [part for part in get_args(hint) if part is not type(None)] if type(None) in get_args(hint) else [hint]
    return parts[0] if len(parts) == 1 and parts[0] is not type(None) else None


def signature_of(call: object) -> Signature | None:
    """What ``function`` has been told of a function; None for any other."""
    signature: Signature | None = getattr(call, _MARK, None)
    return signature


class Applied:
    """A row -> the row with the result of a function of the user.

    Args:
        called: the function.
        arguments: columns of its arguments, which no result has.
        names: of the new columns.
        rows: the function yields rows, in whose columns ``names`` are by position.
        outer: a row for which no row is yielded comes once, with nulls.
    """

    def __init__(
        self,
        called: Callable[..., Any],
        arguments: tuple[str, ...],
        names: tuple[str, ...],
        rows: tuple[str, ...],
        *,
        outer: bool,
    ) -> None:
        self.called, self.arguments, self.names, self.rows, self.outer = called, arguments, names, rows, outer
        self.__name__ = getattr(called, "__name__", "function")

    def __call__(self, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The rows of a row."""
        others = {name: value for name, value in row.items() if name not in self.arguments}
        result = self.called(*(row[name] for name in self.arguments))
        if not self.rows:
            yield {**others, self.names[0]: result}
            return
        none = True
        for made in result or ():
            none = False
            yield others | {name: made.get(column) for name, column in zip(self.names, self.rows, strict=True)}
        if none and self.outer:
            yield others | dict.fromkeys(self.names)
