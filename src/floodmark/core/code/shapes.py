"""Shapes of objects: a label of the kind, and the values that distinguish two objects of one kind. Independent of the process and of Python's version."""

from __future__ import annotations

import typing
import warnings
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import cached_property, partial, partialmethod, singledispatchmethod
from pathlib import PurePath
from types import GenericAlias, MappingProxyType, MethodType, SimpleNamespace, UnionType
from typing import Any

from floodmark.core.code.origin import name_of, of_library

_ALIASES = (GenericAlias, type(typing.List[int]), type(typing.Optional[int]), UnionType)  # noqa: UP006, UP045 - their types


LATER = MappingProxyType({"floodmark": "later"})
"""Metadata of a setting that a declaration has got in a later release: at its default it is no part of a fingerprint."""


@dataclass(frozen=True, slots=True)
class Shape:
    """An object taken apart.

    Args:
        label: name of the kind.
        parts: values that make up the object.
        unordered: whether the order of the parts has no meaning.
        local: whether the object belongs to its process, so that no other process can have it.
    """

    label: str
    parts: tuple[Any, ...] = ()
    unordered: bool = False
    local: bool = False


_NAME_ONLY = frozenset(
    {
        "logging.Logger",
        "logging.LoggerAdapter",
        "threading.lock",
        "threading.RLock",
        "thread.lock",
        "thread.RLock",
        "os.Environ",
        "os._Environ",
    }
    | {"contextvars.ContextVar", "threading.local", "thread.local", "thread._local"}
)
"""Kinds whose state belongs to the process and does not affect results."""


def shape_of(value: Any) -> Shape | None:
    """The shape of an object other than a function, class, module or plain constant; None if its content cannot be read."""
    kind = type(value)
    label = name_of(kind)
    if label in _NAME_ONLY or isinstance(value, _loggers()):
        return Shape(label, local=True)
    known = _KNOWN.get(kind) or next((how for base, how in _BASES.items() if isinstance(value, base)), None)
    if known is not None:
        return Shape(label, tuple(known(value)))
    if isinstance(value, (set, frozenset)) and kind in {set, frozenset}:
        return Shape(label, tuple(value), unordered=True)
    if isinstance(value, _ALIASES):
        origin = typing.get_origin(value)
        union = origin in {typing.Union, UnionType}
        return Shape("union" if union else "alias", (*(() if union else (origin,)), *typing.get_args(value)))
    if kind.__module__.startswith("floodmark.") and (hasattr(kind, "fingerprint") or hasattr(kind, "__set_name__")):
        return Shape(
            label, (value.name,)
        )  # operators and sources have versions of their own; the graph describes states and timers
    if kind.__module__.startswith("floodmark.") and hasattr(kind, "__attrs_attrs__") and not hasattr(value, "__dict__"):
        return Shape("object", (kind, [getattr(value, setting.name) for setting in kind.__attrs_attrs__]))
    foreign = _foreign(value, kind)
    if foreign is not None:
        return Shape(label, foreign)
    return None if hasattr(kind, "__next__") or kind.__module__ in {"random", "_random"} else _reduced(value, label)


def _loggers() -> tuple[type, ...]:
    import logging  # noqa: PLC0415 - loaded already if there is a logger

    return (logging.Logger, logging.LoggerAdapter)


def _items(value: Mapping[Any, Any]) -> Iterable[Any]:
    """Keys and values in the order of the mapping, which a loop over the mapping sees."""
    return (one for item in value.items() for one in item)


_KNOWN: dict[type, Callable[[Any], Iterable[Any]]] = {
    tuple: tuple,
    list: tuple,
    dict: _items,
    OrderedDict: _items,
    Counter: _items,
    MappingProxyType: _items,
    defaultdict: lambda v: (v.default_factory, *_items(v)),
    deque: lambda v: (v.maxlen, *v),
    range: lambda v: (v.start, v.stop, v.step),
    slice: lambda v: (v.start, v.stop, v.step),
    bytearray: lambda v: (bytes(v),),
    memoryview: lambda v: (bytes(v),),
    SimpleNamespace: lambda v: _items(dict(sorted(vars(v).items()))),
    Decimal: lambda v: (str(v),),
    date: lambda v: (v.isoformat(),),
    time: lambda v: (v.isoformat(), v.fold, v.tzinfo),
    datetime: lambda v: (v.replace(tzinfo=None).isoformat(), v.fold, v.tzinfo),
    timedelta: lambda v: (v.days, v.seconds, v.microseconds),
    timezone: lambda v: (v.utcoffset(None), v.tzname(None)),
    staticmethod: lambda v: (v.__func__,),
    classmethod: lambda v: (v.__func__,),
    property: lambda v: (v.fget, v.fset),
    cached_property: lambda v: (v.func,),
    singledispatchmethod: lambda v: (v.dispatcher, v.func),
    MethodType: lambda v: (v.__func__, v.__self__),
}

_BASES: dict[type, Callable[[Any], Iterable[Any]]] = {
    PurePath: lambda v: (str(v),),
    partial: lambda v: (v.func, v.args, *_items(dict(sorted(v.keywords.items())))),
    partialmethod: lambda v: (v.func, v.args, *_items(dict(sorted(v.keywords.items())))),
    typing.TypeVar: lambda v: (v.__name__,),
}


def _foreign(value: Any, kind: type) -> tuple[Any, ...] | None:  # noqa: C901, PLR0911, PLR0912 - a case per kind of object
    """The content of a pattern, time zone, array or table, independent of how a release of its library stores the content; None for other objects."""
    name = f"{kind.__module__.split('.')[0]}.{kind.__name__}"
    match name:
        case "re.Pattern":
            return (value.pattern, int(value.flags))
        case "zoneinfo.ZoneInfo":
            return (value.key,)
        case "_struct.Struct" | "struct.Struct":
            return (value.format,)
        case "array.array":
            return (value.typecode, value.tobytes())
        case "uuid.UUID":
            return (value.int,)
        case "numpy.ndarray":
            held = value.tolist() if value.dtype.hasobject else value.tobytes()
            return (str(value.dtype.descr), tuple(value.shape), held)
        case "pandas.DataFrame":
            columns = [(n, str(t), value.iloc[:, i].tolist()) for i, (n, t) in enumerate(value.dtypes.items())]
            return (columns, value.index.tolist())
        case "pandas.Series":
            return (value.name, str(value.dtype), value.tolist(), value.index.tolist())
        case "pandas.Index":
            return (str(value.dtype), value.tolist())
        case "pyarrow.Table" | "pyarrow.RecordBatch":
            return (str(value.schema), value.to_pydict())
        case "polars.DataFrame":
            return (str(value.schema), value.to_dict(as_series=False))
        case _ if name.startswith("numpy.") and hasattr(value, "dtype") and getattr(value, "shape", None) == ():
            return (str(value.dtype), value.item())
        case _ if name.startswith("pyarrow.") and hasattr(value, "to_pylist"):
            return (str(value.type), value.to_pylist())
        case _:
            return None


def _reduced(value: Any, label: str) -> Shape | None:
    """The shape of an object from its ``__reduce_ex__``, the values that a copy is made from; None if a library's object cannot be copied."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reduction = value.__reduce_ex__(4)
    except Exception:  # noqa: BLE001 - whatever an object that cannot be copied raises
        return None if of_library(type(value)) else Shape("object", (type(value), *_state(value, _held(value))))
    if isinstance(reduction, str):
        return Shape(label, (reduction,))
    maker, arguments, state, items, pairs = (*reduction, None, None, None, None)[:5]
    if getattr(maker, "__name__", "") in {"__newobj__", "__newobj_ex__", "_reconstructor"}:
        maker, *arguments = arguments
    parts = (maker, *arguments, *_state(value, state))
    return Shape("object", (*parts, *(items or ()), *(one for pair in pairs or () for one in pair)))


def _held(value: Any) -> dict[str, Any]:
    slots = [slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ()) if slot != "__dict__"]
    return {slot: getattr(value, slot, None) for slot in slots} | getattr(value, "__dict__", {})


def _state(value: Any, state: Any) -> tuple[Any, ...]:
    """Names and values of attributes, sorted by name, without cached properties."""
    if (
        isinstance(state, tuple) and state and all(s is None or isinstance(s, dict) for s in state)
    ):  # (attributes, slots)
        state = {name: held for part in state for name, held in (part or {}).items()}
    if isinstance(state, list) and is_dataclass(value):  # of slots that cannot be changed: the values of the fields
        later = [
            field.metadata == LATER and held == field.default for field, held in zip(fields(value), state, strict=True)
        ]
        return ([held for held, is_later in zip(state, later, strict=True) if not is_later],)
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        return () if state is None else (state,)
    lazy = {n for kind in type(value).__mro__ for n, v in vars(kind).items() if isinstance(v, cached_property)}
    return tuple(_items({name: state[name] for name in sorted(state.keys() - lazy)}))
