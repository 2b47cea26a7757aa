"""Calls of other systems as steps: the function, its contract and its settings, checked."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from floodmark.core.code import Code
from floodmark.core.errors import DefinitionError, shown
from floodmark.core.time import describe_span, span
from floodmark.spec.graph import steps
from floodmark.spec.rows.checks import is_contract, new_columns, one_of, unfit_setting
from floodmark.spec.rows.contract import Contract
from floodmark.spec.rows.contract import schema as contract_schema
from floodmark.spec.values.schema import Schema

_ARGUMENTS = 2
"""The row and the request."""


def call(  # noqa: PLR0913 - settings by name
    parent: steps.Step,
    function: object,
    contract: type[Contract] | None,
    where: str,
    *,
    ordered: bool,
    concurrency: int,
    timeout: str | timedelta,
    retries: int,
    on_error: steps.OnError,
    cache: tuple[str, ...] | str,
    cache_for: str | timedelta,
    uid: str | None,
    version: str | None,
    keep: str | timedelta | None,
) -> steps.Call:
    """The step of ``Stream.call``.

    Raises:
        DefinitionError: as ``Stream.call``.
    """
    asks = _function(function, where)
    schema = _answered(asks, contract, where)
    one_of(steps.OnError, on_error, "on_error", where)
    wait, holds = span(timeout, f"{where}, timeout"), span(cache_for, f"{where}, cache_for")
    lasts = 0 if keep is None else span(keep, f"{where}, keep")
    wrong = [f"concurrency={concurrency!r}"] if not _whole(concurrency, 1) else []
    wrong += [f"retries={retries!r}"] if not _whole(retries, 0) else []
    wrong += [f"timeout={describe_span(wait)}"] if wait <= 0 else []
    wrong += [f"cache_for={describe_span(holds)}"] if holds <= 0 else []
    wrong += [f"keep={describe_span(lasts)}"] if keep is not None and lasts <= 0 else []
    if wrong:
        fix = "concurrency is 1 or more, retries 0 or more, timeout, cache_for and keep are longer than zero."
        raise unfit_setting(where, ", ".join(wrong), fix)
    columns = (cache,) if isinstance(cache, str) else tuple(cache)
    name = uid or re.sub(r"\W+", "_", getattr(asks, "__name__", type(asks).__name__)).strip("_")
    return steps.Call(
        parent=parent,
        function=asks,
        schema=_with_row(parent.schema, columns, schema, where) if columns else schema,
        code=Code.of(asks),
        on_error=on_error,
        uid=name,
        cache=columns,
        cache_for=holds if columns else 0,
        version=version,
        concurrency=concurrency,
        timeout=wait,
        retries=retries,
        ordered=ordered,
        keep=lasts,
    )


def takes_request(function: Callable[..., Any]) -> bool:
    """Whether a function has a second argument."""
    return len(_positional(function)) == _ARGUMENTS


def _positional(function: Callable[..., Any]) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [one for one in parameters if one.kind in kinds and one.default is inspect.Parameter.empty]


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _function(function: object, where: str) -> Callable[..., Any]:
    fix = "Write async def locate(row) or async def locate(row, request), and return a row, None or a list of rows."
    if not callable(function) or inspect.isasyncgenfunction(function):
        got = "an asynchronous generator" if callable(function) else shown(function)
        raise DefinitionError(where, "a function that returns its answer", got, fix, code="DEFINITION-051")
    try:
        fits = 1 <= len(_positional(function)) <= _ARGUMENTS
    except ValueError as error:  # a class of Python's own, such as dict
        got = f"{shown(function)}, whose arguments are not known"
        raise DefinitionError(
            where, "a function of a row, or of a row and a request", got, fix, code="DEFINITION-051"
        ) from error
    if not fits:
        got = f"one with {len(_positional(function))} arguments"
        raise DefinitionError(where, "a function of a row, or of a row and a request", got, fix, code="DEFINITION-051")
    return function


def _answered(function: Callable[..., Any], contract: type[Contract] | None, where: str) -> Schema:
    """The columns of an answer: of the contract, or of the one that the function is annotated to return."""
    hint = None
    if contract is None:
        try:
            hint = typing.get_type_hints(function).get("return")
        except (NameError, TypeError):  # a contract defined inside a function's body, or a callable object
            hint = getattr(function, "__annotations__", {}).get("return")
        contract = next(_contracts(hint), None)
    if not is_contract(contract):
        got = "none" if contract is None and hint is None else shown(contract or hint)
        fix = "call(locate, schema=Located), where Located is a Contract; or annotate it: async def locate(row) -> Located | None."
        raise DefinitionError(where, "the contract of its answers", got, fix, code="DEFINITION-051")
    assert contract is not None
    return contract_schema(contract)


def _contracts(hint: Any) -> Iterator[type[Contract]]:
    """The contracts in an annotation such as ``Located | None`` or ``list[Located]``."""
    if is_contract(hint):
        yield hint
    for argument in typing.get_args(hint):
        yield from _contracts(argument)


def _with_row(row: Schema, cache: tuple[str, ...], answer: Schema, where: str) -> Schema:
    """The columns of the row, then those of the answer."""
    for name in cache:
        if name not in row:
            raise DefinitionError(
                where, "cache of columns of the row", repr(name), row.nearest(name), code="DEFINITION-022"
            )
    fix = "With cache the answer's columns are added to the row's: give them other names in the contract."
    new_columns([name for name in answer.names if name in row], where, "new columns in the answer", fix)
    return Schema((*row.columns, *answer.columns))
