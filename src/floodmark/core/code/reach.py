"""The code that a function or class of the user reaches: helpers, constants, classes and modules, and everything those reach.

The walk follows current values, so it finds a helper however the helper is imported, decorated or stored. Code of a library counts by its
name. A value that cannot be followed counts with the whole module that uses the value, so that an edit of the module changes the digest.
"""

from __future__ import annotations

import hashlib
import sys
from abc import ABCMeta
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache, partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from floodmark.core.code.classes import file_of, inherited, is_annotated, is_generated, methods_of, node_of, where_of
from floodmark.core.code.origin import is_builtin, load, module_of_library, name_of, of_library, public
from floodmark.core.code.outline import Computed, constant
from floodmark.core.code.scopes import Reference
from floodmark.core.code.shapes import shape_of
from floodmark.core.code.source import source_of
from floodmark.core.code.text import Text
from floodmark.core.code.where import Where, cells, portable

_CACHED = type(lru_cache(lambda: None))
_ABOUT_ITSELF = frozenset(
    {
        "__name__",
        "__file__",
        "__doc__",
        "__package__",
        "__spec__",
        "__loader__",
        "__path__",
        "__builtins__",
        "__debug__",
    }
)
_ANY_NAME = frozenset({"globals", "eval", "exec"})
_ANY_MODULE = frozenset(
    {"sys.modules", "pkgutil.iter_modules", "pkgutil.walk_packages", "runpy.run_module", "runpy.run_path"}
)


def readable(function: Any) -> bool:
    """True if the source of a function or class can be read, or if a library defines it and the source is not needed."""
    if isinstance(function, FunctionType) and not of_library(function):
        source = source_of(function.__code__.co_filename, function.__globals__)
        return source is not None and bool(source.function(function.__code__))
    inner = (
        getattr(function, "__func__", None) or getattr(function, "func", None) or getattr(function, "__wrapped__", None)
    )
    if callable(inner) and not isinstance(function, type):
        return readable(inner)
    if isinstance(function, type) and not of_library(function):
        methods = {name: m for name, m in vars(function).items() if isinstance(m, FunctionType)}
        return all(readable(m) or is_generated(function, name, m) for name, m in methods.items())
    return True


class Reach(Text):
    """One walk over the code that a value reaches.

    Attributes:
        parts: (kind, name) -> the part, in the order of the walk.
        libraries: names used from libraries, such as ``math.floor``, ``builtins.open``; an attribute of a module with its module.
        opaque: descriptions of objects inside the value whose content cannot be read. Objects that only its functions use are not included.
    """

    opaque: tuple[str, ...] = ()
    _direct = True

    def of(self, value: Any) -> Reach:
        """Walk from a function, class or any other value. Returns this walk."""
        home = getattr(sys.modules.get(getattr(value, "__module__", None) or ""), "__dict__", {})
        self._value(value, Where(variables=home))
        self._direct = False
        self.opaque += tuple(part.name for part in self.parts.values() if part.kind == "unknown")
        self.finish()
        return self

    def _unknown(self, what: str, where: Where) -> None:
        """Note a value that cannot be followed: the whole module that uses the value counts, if the module is the user's."""
        module = sys.modules.get(where.module)
        own = module is not None and vars(module) is where.variables and not of_library(module)
        how = f"counts with all of module {where.module}" if own else "counts by its name alone"
        with self.part("unknown", what, how):
            self.put("unknown")
        if own:
            assert module is not None
            self._module(module)

    # ---- names

    def _tokens(self, tokens: Iterable[Any], where: Where) -> None:
        for token in tokens:
            match token:
                case str():
                    self.put(token)
                case Reference(name=""):
                    self._imported(token, where)
                case Reference():
                    self._reference(token, where)
                case Computed():
                    self._computed(token, where)

    def _reference(self, reference: Reference, where: Where) -> None:
        name = reference.name
        if name in _ABOUT_ITSELF:
            self.put(f"={reference}")
        elif name in where.cells:
            self._follow(where.cells[name], reference.attributes, where, name)
        elif name in where.variables:
            self._global(name, reference.attributes, where)
        elif is_builtin(name):
            self._library(".".join(("builtins", name, *reference.attributes)))
            if name in _ANY_NAME:
                self._unknown(f"{name}() in {where.module}", where)
        else:
            self.put(f"?{reference}")
            if where.loading:
                self._unknown(f"{reference} in {where.module}, which has no value yet", where)

    def _global(self, name: str, attributes: tuple[str, ...], where: Where) -> None:
        """Follow a variable of a module. A variable imported from a library counts by its name in the library."""
        value = where.variables[name]
        bound = where.source.imports.get(name) if where.source is not None else None
        if bound is not None and bound.level == 0 and module_of_library(bound.module):
            home = sys.modules.get(bound.module)
            if home is value or (bound.attributes and getattr(home, bound.attributes[0], home) is value):
                self._library(".".join((public(bound.module), *bound.attributes, *attributes)))
                return
        self._follow(value, attributes, where, name)

    def _follow(self, value: Any, attributes: tuple[str, ...], where: Where, name: str) -> None:
        """Follow a value and write the attributes read from it. Attributes of a module are followed to their values."""
        if isinstance(value, ModuleType):
            self._of_module(value, attributes, where)
            return
        if isinstance(value, (type, FunctionType, BuiltinFunctionType)) and attributes and self._named(value):
            self._library(".".join((name_of(value), *attributes)))
            return
        if isinstance(value, (type, FunctionType, MethodType, BuiltinFunctionType)):
            self._value(value, where)
        else:
            with self.part("constant", f"{where.module}.{name}", where.file):
                self._value(value, where)
        self.put(*(f".{attribute}" for attribute in attributes))

    def _of_module(self, module: ModuleType, attributes: tuple[str, ...], where: Where) -> None:
        if of_library(module):
            self._library(".".join((public(module.__name__), *attributes)))
        elif not attributes:
            with self.part(
                "unknown",
                f"{module.__name__} as a value in {where.module}",
                f"counts with all of module {module.__name__}",
            ):
                self._module(module)
        elif hasattr(module, attributes[0]) and attributes[0] not in _ABOUT_ITSELF:
            self._global(attributes[0], attributes[1:], Where.of_module(module, attributes[0]))
        elif attributes[0] not in _ABOUT_ITSELF and (below := load(f"{module.__name__}.{attributes[0]}")) is not None:
            self._of_module(below, attributes[1:], where)
        else:
            self.put("?" + ".".join(attributes))

    def _imported(self, reference: Reference, where: Where) -> None:
        """Follow an import inside a definition."""
        if reference.level == 0 and module_of_library(reference.module):
            self._library(".".join((public(reference.module), *reference.attributes)))
            return
        module = load(reference.module, where.package, reference.level)
        if module is None:
            self._unknown(f"import of {reference} in {where.module}", where)
        else:
            self._of_module(module, reference.attributes, where)

    def _computed(self, computed: Computed, where: Where) -> None:
        """Count every module that an import by a computed name may load."""
        package = (
            load(computed.prefix, where.package) if computed.prefix and not module_of_library(computed.prefix) else None
        )
        folders = list(getattr(package, "__path__", ()))
        top = sys.modules.get(where.module.split(".")[0])
        folders = (
            folders or list(getattr(top, "__path__", ())) or ([str(Path(where.file).parent)] if where.file else [])
        )
        name = computed.prefix or where.package or str(Path(where.file).parent)
        with self.part("unknown", f"import by a computed name in {where.module}", f"counts with all modules of {name}"):
            for folder in folders:
                self._files(Path(folder), deep=bool(package or hasattr(top, "__path__")))

    def _files(self, folder: Path, *, deep: bool) -> None:
        """Write the outline of every Python file in a folder."""
        for path in sorted(folder.glob("**/*.py" if deep else "*.py")):
            source = source_of(str(path))
            if source is not None:
                self.put(path.relative_to(folder).as_posix(), *map(str, source.outline(source.tree)))

    def _library(self, name: str) -> None:
        self.libraries.setdefault(name)
        self.put(f"lib {name}")

    # ---- values

    def _value(self, value: Any, where: Where) -> None:
        match value:
            case Enum():
                self._value(type(value), where)
                self.put(f".{value.name}" if value.name else constant(value.value))
            case None | bool() | int() | float() | complex() | bytes() if type(value).__module__ == "builtins":
                self.put(constant(value))
            case str() if type(value) is str:
                self.put(portable(value, where))
            case type():
                self._class(value, where)
            case FunctionType():
                self._function(value, where)
            case BuiltinFunctionType():
                self._compiled(value, where)
            case ModuleType():
                self._of_module(value, (), where)
            case _CACHED():
                self.put("cached", str(value.cache_parameters()["typed"]))
                self._value(value.__wrapped__, where)
            case _:
                self._object(value, where)

    def _object(self, value: Any, where: Where) -> None:
        """Write an object by its parts. An object of a user's class is written once, and at later occurrences as its number."""
        own = not of_library(type(value))
        if (own and not self.number(value)) or id(value) in self._active:
            self.put("" if own else "again")
            return
        shape = shape_of(value)
        if shape is None:
            self._opaque(value, where)
            return
        if shape.local and self._direct:
            self.opaque += (f"a {shape.label}",)
        self._active.add(id(value))
        self.put(f"<{shape.label}")
        if shape.unordered:
            self.put(*sorted(Reach().of_element(part, where) for part in shape.parts))
            for part in shape.parts:
                if not isinstance(part, (str, int, float, bytes)):
                    self._aside(part, where)
        else:
            for part in shape.parts:
                self._value(part, where)
        self.put(">")
        self._active.discard(id(value))

    def of_element(self, value: Any, where: Where) -> str:
        """The digest of a value by itself, by which the elements of a set are sorted."""
        self._value(value, where)
        self.finish()
        return self.digest

    def _aside(self, value: Any, where: Where) -> None:
        """Add the parts and libraries of a value whose digest is written already."""
        inner = Reach()
        inner.of_element(value, where)
        self.parts = {**inner.parts, **self.parts}
        self.libraries = {**self.libraries, **inner.libraries}

    def _opaque(self, value: Any, where: Where) -> None:
        """Write an object whose content cannot be read: by its ``repr`` if that is stable, otherwise as unknown."""
        kind = name_of(type(value))
        self.put(f"lib {kind}")
        self.libraries.setdefault(kind)
        text = repr(value)
        if text and " at 0x" not in text and not hasattr(value, "__next__"):
            self.put(ascii(text))
        else:
            self._unknown(f"a {kind} in {where.module}", where)

    def _named(self, value: Any) -> bool:
        """True if a function or class counts by its name."""
        return (
            of_library(value)
            if isinstance(value, (type, FunctionType))
            else not _bound(value) and self._of_python(value)
        )

    @staticmethod
    def _of_python(value: BuiltinFunctionType) -> bool:
        return module_of_library(str(value.__module__ or "builtins"))

    def _compiled(self, value: BuiltinFunctionType, where: Where) -> None:
        """Write a compiled function. A function of the user's counts with the file of its compiled module."""
        if _bound(value):
            self.put(f"bound {value.__name__}")
            owner = value.__self__
            if type(owner).__module__ in {"random", "numpy.random.mtrand", "numpy.random._generator"}:
                self._library(f"{public(type(owner).__module__)}.{value.__name__}")
            else:
                self._value(owner, where)
        elif self._of_python(value):
            self._library(name_of(value))
        else:
            self.put(f".{value.__name__}")
            module = sys.modules.get(str(value.__module__))
            if module is not None:
                self._module(module)

    # ---- functions

    def _function(self, function: FunctionType, where: Where) -> None:
        if of_library(function):
            self._wrapper(function, where)
            return
        self.later(function, partial(self._defined, function))

    def _defined(self, function: FunctionType) -> None:
        around = Where.of_function(function)
        code = function.__code__
        nodes = around.source.function(code) if around.source is not None else []
        name = f"{around.module}.{function.__qualname__}"
        with self.part("function", name, f"{code.co_filename}:{code.co_firstlineno}"):
            for node in nodes:
                assert around.source is not None
                self._tokens(around.source.outline(node), around)
            if not nodes:
                self._generated(function, around)
            for default in function.__defaults__ or ():
                self.put("default")
                self._value(default, around)
            for keyword, default in sorted((function.__kwdefaults__ or {}).items()):
                self.put(f"default {keyword}")
                self._value(default, around)
            for attribute, held in sorted(vars(function).items()):
                self.put(f".{attribute}")
                self._value(held, around)

    def _generated(self, function: FunctionType, where: Where) -> None:
        """Write a function without source, which a program made."""
        if source_of(where.file, dict(where.variables)) is None or where.module == "__main__":
            code = function.__code__
            self.put(code.co_code.hex(), *map(ascii, code.co_names))
            self.put(
                *(constant(one) for one in code.co_consts if isinstance(one, (str, bytes, int, float, type(None))))
            )
        self._unknown(f"{function.__qualname__}, made by a program in {where.module}", where)

    def _wrapper(self, function: FunctionType, where: Where) -> None:
        """Write a function of a library. A wrapper made by a decorator counts together with the values it holds, such as the user's function."""
        self._library(name_of(function))
        registry = vars(function).get("registry")
        taken = cells(function)
        if not taken and "__wrapped__" not in vars(function):
            return
        if not self.number(function):
            return
        if isinstance(registry, Mapping) and hasattr(function, "dispatch"):
            for kind in sorted(registry, key=name_of):
                self._value(kind, where)
                self._value(registry[kind], where)
            return
        held = [vars(function).get("__wrapped__"), *(taken[name] for name in sorted(taken))]
        for value in held:
            kind = type(value)
            if (
                not of_library(kind)
                or kind.__module__ in {"builtins", "functools"}
                or isinstance(value, (type, FunctionType))
            ):
                self._value(value, where)
            else:
                self.put(f"a {name_of(kind)}")

    # ---- classes

    def _class(self, kind: type, where: Where) -> None:
        if of_library(kind):
            if kind.__module__ == "builtins":
                self.put(f"lib builtins.{kind.__qualname__}")
                self.libraries.setdefault(f"builtins.{kind.__qualname__}")
            else:
                self._library(name_of(kind))
            return
        self.later(kind, partial(self._members, kind, where))

    def _members(self, kind: type, where: Where) -> None:
        around = where_of(kind, where)
        node, file = node_of(kind, around), file_of(kind, methods_of(kind))
        classes = [(own, where_of(own, where)) for own in kind.__mro__ if not of_library(own)]
        with self.part(
            "class", f"{kind.__module__}.{kind.__qualname__}", file if node is None else f"{file}:{node.lineno}"
        ):
            if type(kind) not in {type, ABCMeta}:
                self._value(type(kind), around)
            for base in kind.__mro__[1:-1]:
                if of_library(base):
                    self._value(base, around)
            for own, home in classes:
                self._body(own, home)
            for name, member, home in inherited(classes):
                self.put(f".{name}")
                self._value(member, home)

    def _body(self, kind: type, where: Where) -> None:
        """Write the outline of a class whose decorators, keywords or annotations count. The members of other classes describe them in full."""
        node = node_of(kind, where)
        if node is None or where.source is None:
            return
        annotated = is_annotated(kind, node)
        if node.decorator_list or node.keywords or annotated:
            self._tokens(where.source.outline(node, annotations=annotated), where)

    # ---- modules

    def _module(self, module: ModuleType) -> None:
        """Count a whole module and everything it uses."""
        self.later(module, partial(self._contents, module))

    def _contents(self, module: ModuleType) -> None:
        around = Where.of_module(module)
        with self.part("module", module.__name__, around.file):
            if hasattr(module, "__path__"):
                for folder in module.__path__:
                    self._files(Path(folder), deep=True)
            elif around.source is not None:
                self._tokens(around.source.outline(around.source.tree), around)
            elif around.file:
                self.put(hashlib.sha256(Path(around.file).read_bytes()).hexdigest())


def _bound(value: Any) -> bool:
    owner = getattr(value, "__self__", None)
    return owner is not None and not isinstance(owner, ModuleType)
