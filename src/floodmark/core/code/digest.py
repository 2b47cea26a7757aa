"""Digests of the code of a user's function or class and all code it reaches. Equal digests mean equal behaviour.

docs/concepts.md ("What the version sees") lists the code that counts and the code that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from floodmark.core.code.reach import Reach, readable
from floodmark.core.errors import DefinitionError
from floodmark.core.fingerprint import marked


def code_of(function: Callable[..., Any] | type) -> str:
    """Digest of a function or class and all code it reaches, prefixed with the method of digests: ``m2:3f9a...``.

    Raises:
        DefinitionError: DEFINITION-003, the source cannot be read (typed at a prompt), so that changes of it would go unnoticed.
    """
    check_source(function)
    return marked(Reach().of(function).digest)


def check_source(function: Callable[..., Any] | type) -> None:
    """Check that the source of a function or class can be read.

    Raises:
        DefinitionError: DEFINITION-003, the source cannot be read.
    """
    if not readable(function):
        where = f"function '{getattr(function, '__qualname__', function)}'"
        fix = "Define it in a module of your operators/ folder; its source is part of the version."
        raise DefinitionError(where, "readable source", "none", fix, code="DEFINITION-003")


def settings_of(values: Mapping[str, Any], where: str) -> dict[str, object]:
    """{attribute: JSON value} of an object of the user's: constants, lists and dicts as they are, any other value as the digest of its content.

    Args:
        values: attribute -> value.
        where: the object, for errors.

    Raises:
        DefinitionError: DEFINITION-123, a value whose content cannot be read.
    """
    return {name: _setting(value, f"self.{name}", where) for name, value in sorted(values.items())}


def _setting(value: Any, name: str, where: str) -> object:
    if value is None or type(value) in {bool, int, float, str}:
        return value
    if type(value) in {list, tuple}:
        return [_setting(one, name, where) for one in value]
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: _setting(held, name, where) for key, held in value.items()}
    reach = Reach().of(value)
    if reach.opaque:
        fix = "Keep numbers, texts and lists in its attributes; open what else it needs in open()."
        got = f"{name} = {reach.opaque[0]}"
        raise DefinitionError(where, "settings that can be compared", got, fix, code="DEFINITION-123")
    return marked(reach.digest)


def class_of(value: object, what: str, without: str = "") -> dict[str, object]:
    """An object of a user's class as JSON values: ``code`` of the class, and ``settings`` if the object has any.

    Args:
        value: the object, whose attributes are its settings.
        what: kind of the object, for errors: ``window assigner``.
        without: name of an attribute that is no setting.
    """
    own = {name: held for name, held in getattr(value, "__dict__", {}).items() if name != without}
    settings = settings_of(own, f"{what} '{type(value).__name__}'")
    return {"code": code_of(type(value))} | ({"settings": settings} if settings else {})


class Code:
    """The code of a function, compared by its digest. The digest is computed on first use, when helpers defined below an operator exist too.

    Args:
        function: the user's; None if ``text`` is given.
        text: the digest; None to compute the digest.
    """

    __slots__ = ("_function", "_text")

    def __init__(self, function: Callable[..., Any] | type | None = None, text: str | None = None) -> None:
        self._function, self._text = function, text

    @staticmethod
    def of(function: Callable[..., Any]) -> Code:
        """The code of a function.

        Raises:
            DefinitionError: DEFINITION-003, the source of the function cannot be read.
        """
        check_source(function)
        return Code(function)

    def canonical(self) -> str:
        """The digest, prefixed with the method of digests."""
        return str(self)

    def __str__(self) -> str:
        if self._text is None:
            assert self._function is not None
            self._text = code_of(self._function)
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Code) and (
            (self._function is not None and self._function is other._function) or str(self) == str(other)
        )

    def __hash__(self) -> int:
        return hash(Code)

    def __reduce__(self) -> tuple[Any, ...]:
        return Code, (None, str(self))

    def __repr__(self) -> str:
        return f"Code({self})"
