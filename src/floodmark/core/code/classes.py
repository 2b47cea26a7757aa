"""Classes: distinguishes the members that the user wrote from the members that Python and libraries add."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from enum import EnumMeta
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any

from floodmark.core.code.origin import of_library
from floodmark.core.code.source import source_of
from floodmark.core.code.where import Where, cells

_NOT_MEMBERS = frozenset(
    {
        "__module__",
        "__qualname__",
        "__doc__",
        "__dict__",
        "__weakref__",
        "__slots__",
        "__slotnames__",
        "__annotations__",
        "__hash__",
    }
    | {"__firstlineno__", "__static_attributes__", "__annotate_func__", "__annotations_cache__", "__classdictcell__"}
    | {
        "__dataclass_params__",
        "__dataclass_fields__",
        "__match_args__",
        "__parameters__",
        "__orig_bases__",
        "__type_params__",
    }
    | {"__abstractmethods__", "_abc_impl", "__protocol_attrs__", "_is_protocol", "__non_callable_proto_members__"}
    | {
        "_is_runtime_protocol",
        "__attrs_attrs__",
        "__attrs_own_setattr__",
        "__signature__",
        "__class_vars__",
        "__private_attributes__",
    }
)
_FIELDS = ("__dataclass_fields__", "_field_defaults", "__attrs_attrs__", "__total__")
"""Attributes of a class whose annotations are its fields."""


def plain(member: Any) -> Any:
    """(member of a class) -> the function of a method or property; any other member unchanged."""
    if isinstance(member, property):
        return member.fget
    inner = getattr(member, "__func__", None) or getattr(member, "func", None) or member
    return inner if isinstance(inner, FunctionType) else member


def methods_of(kind: type) -> list[FunctionType]:
    """The functions of the methods and properties of a class."""
    return [m for m in map(plain, vars(kind).values()) if isinstance(m, FunctionType)]


def node_of(kind: type, where: Where) -> ast.ClassDef | None:
    """The syntax tree of a class's definition; None if its source cannot be read."""
    methods = methods_of(kind)
    file = file_of(kind, methods)
    lines = [m.__code__.co_firstlineno for m in methods if m.__code__.co_filename == file]
    return None if where.source is None else where.source.of_class(kind.__qualname__, lines)


def inherited(classes: list[tuple[type, Where]]) -> Iterator[tuple[str, Any, Where]]:
    """(name, member, home) of a class and its bases, sorted by name, so that the order of definitions does not count.

    Args:
        classes: (class, where its body was run) of the class and then its bases. Of equal names, the member of the earlier class comes first.
    """
    members = [(name, member, home) for kind, home in classes for name, member in _members(kind)]
    yield from sorted(members, key=lambda member: member[0])


def file_of(kind: type, methods: Iterable[FunctionType]) -> str:
    """The file that defines a class; empty if unknown. The methods name the file: another module may have the class's module name by now."""
    files = [m.__code__.co_filename for m in methods if m.__module__ == kind.__module__ and not of_library(m)]
    files = [file for file in files if not file.startswith("<")] or files
    return files[0] if files else str(getattr(sys.modules.get(kind.__module__), "__file__", "") or "")


def where_of(kind: type, where: Where) -> Where:
    """Variables, cells and source of the code that defined a class.

    Args:
        kind: the class.
        where: surroundings of the code that uses the class; supplies the variables if the class's module is not loaded.
    """
    methods = [m for m in methods_of(kind) if m.__module__ == kind.__module__]
    taken: dict[str, Any] = {}
    for method in methods:
        taken |= cells(method)
    own = next(
        (m.__globals__ for m in methods if not of_library(m) and m.__globals__.get("__name__") == kind.__module__), None
    )
    module = sys.modules.get(kind.__module__)
    variables = own if own is not None else where.variables if module is None else vars(module)
    file = file_of(kind, methods)
    return Where(variables=variables, cells=taken, source=source_of(file, dict(variables)) if file else None)


def is_generated(kind: type, name: str, member: FunctionType) -> bool:
    """True if a library generated a method for the fields of a class, or supplies it to every class of this kind."""
    if of_library(member):
        return name.startswith("__") or isinstance(kind, EnumMeta)
    return member.__code__.co_filename.startswith("<") and any(hasattr(kind, name) for name in _FIELDS)


def is_annotated(kind: type, node: ast.ClassDef) -> bool:
    """True if creating the class may read its annotations: by a decorator, a base's ``__init_subclass__`` or a metaclass, or to define fields."""
    based = any(base is not object and not of_library(base) for base in kind.__bases__)
    hooked = based and "__init_subclass__" in {n for base in kind.__mro__ if not of_library(base) for n in vars(base)}
    return bool(node.decorator_list) or hooked or _foreign(kind) or any(hasattr(kind, name) for name in _FIELDS)


def _foreign(kind: type) -> bool:
    """True if a metaclass of a library or the user makes the class, such as pydantic's. Such a metaclass may do anything."""
    return type(kind).__module__ not in {"builtins", "abc", "enum", "typing", "_typing"}


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """(name, member) of the members that a class itself defines, sorted by name."""
    if isinstance(kind, EnumMeta):
        enumerated: dict[str, Any] = dict(kind.__members__)
        yield "__members__", [(name, entry.value) for name, entry in enumerated.items()]
    fields = getattr(kind, "_fields", ()) if hasattr(kind, "_field_defaults") else ()
    if "_fields" in vars(kind) and fields:
        yield "_fields", fields
        yield "_field_defaults", kind._field_defaults  # type: ignore[attr-defined]  # of a named tuple
    for name, member in sorted(vars(kind).items()):
        function = plain(member)
        if (
            name in _NOT_MEMBERS
            or isinstance(member, (MemberDescriptorType, GetSetDescriptorType))
            or _declared(member)
        ):
            continue
        if isinstance(function, FunctionType):
            if not is_generated(kind, name, function):
                yield name, member
        elif not _about_kind(kind, name, member, fields):
            yield name, member


def _declared(member: Any) -> bool:
    """True if a member is a state or timer of floodmark. The graph describes those."""
    return type(member).__module__.startswith("floodmark.") and hasattr(type(member), "__set_name__")


def _about_kind(kind: type, name: str, member: Any, fields: tuple[str, ...]) -> bool:
    """True if a member other than a method belongs to the kind of class (enum, named tuple, a metaclass's) and was not written by the user."""
    if isinstance(kind, EnumMeta):
        return name in kind.__members__ or name.startswith("_")
    if fields and (name in fields or name in {"_fields", "_field_defaults", "_make", "__getnewargs__", "__replace__"}):
        return True
    if _foreign(kind):
        return name.startswith(("__", "model_", "_abc")) or (
            of_library(type(member)) and type(member).__module__ != "builtins"
        )
    return name == "__hash__"
