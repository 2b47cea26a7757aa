"""Signatures: the names of the nodes of an expression in the table of comparisons: a function and the forms of its arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from floodmark.core.types import known
from floodmark.engines.embedded.parity import arithmetic
from floodmark.spec.expressions.arity import COUNTS
from floodmark.spec.expressions.tree import Call, Case, Cast, Column, Field, Lambda, Literal
from floodmark.spec.expressions.typed import Typed
from floodmark.spec.expressions.widening import INTEGERS

_NARROW = 18
"""Digits of decimals that fit a bigint."""
_ENDLESS = 1 << 30
WORDS: Mapping[str, Sequence[int]] = {
    **dict.fromkeys(("extract", "date_part", "datepart", "date_trunc", "timestampadd", "timestampdiff"), (0,)),
    **dict.fromkeys(("trunc", "next_day", "encode", "decode", "sha2", "from_utc_timestamp", "to_utc_timestamp"), (1,)),
    **dict.fromkeys(("to_char", "to_varchar", "to_number", "try_to_number", "to_binary", "try_to_binary"), (1,)),
    **dict.fromkeys(("convert_timezone",), (0, 1)),
    "parse_url": (1, 2),
    "try_parse_url": (1, 2),
}
"""Function -> the arguments whose text selects what the function does; this text is part of the signature."""
PATTERNS: Mapping[str, int] = {
    **dict.fromkeys(("rlike", "regexp", "regexp_like", "regexp_extract", "regexp_extract_all", "regexp_replace"), 1),
    **dict.fromkeys(("regexp_count", "regexp_instr", "regexp_substr", "split"), 1),
}
"""Function -> the argument that is a regular expression."""
FORMATS: Mapping[str, int] = {
    **dict.fromkeys(("date_format", "to_date", "to_timestamp", "try_to_date", "try_to_timestamp", "from_unixtime"), 1),
    **dict.fromkeys(("unix_timestamp", "to_unix_timestamp", "to_timestamp_ltz", "to_timestamp_ntz"), 1),
}
"""Function -> the argument that is a format of times."""
CONTAINERS = frozenset(
    [
        "[]",
        "get",
        "element_at",
        "try_element_at",
        "size",
        "cardinality",
        "map_keys",
        "map_values",
        "isnull",
        "isnotnull",
    ]
)
"""Functions of arrays and maps whose behaviour does not depend on the type of the elements."""
LIKES = frozenset({"like", "ilike"})
"""Functions of patterns in which a backslash has a meaning."""
_TOKEN = re.compile(r"'[^']*'|([A-Za-z])\1*|[^A-Za-z']+", re.DOTALL)


def general(kind: str) -> str:
    """A type without the digits of decimals: ``decimal`` for up to 18 digits, ``decimal(38)`` for more."""

    def short(match: re.Match[str]) -> str:
        return "decimal" if int(match[1]) <= _NARROW else "decimal(38)"

    return re.sub(r"decimal\((\d+),(\d+)\)", short, kind)


def contained(kind: str) -> str:
    """The type that was compared in place of an array, map or struct with other elements; any other type unchanged."""
    made = known(kind)
    if made is None:
        return kind
    match made.name:
        case "struct":
            return "array<bigint>"
        case "array" if made.inner[0].inner:
            return "array<string>"
        case "map" if made.inner[0].name == "string":
            return "map<string,bigint>"
        case _:
            return kind


def _copied(kind: str) -> str:
    """The type that was compared in place of an array, map or struct that is copied whole; any other type unchanged."""
    made = known(kind)
    return "array<bigint>" if made is not None and made.inner else kind


def variadic(name: str) -> bool:
    """Whether a function takes any number of arguments."""
    return name == "in" or any(counts.stop > _ENDLESS for counts in COUNTS.get(name, ()))


def signatures(node: Typed) -> tuple[tuple[str, str], ...]:
    """The (signature, signature without literal values) pairs of one node, each of which has to be allowed."""
    match node.node:
        case Literal(type=kind) if kind.startswith("interval"):
            return ()  # compared with what reads it: ``+(timestamp, interval hour)``
        case Literal(type=kind):
            return _both(f"literal {general(kind)}")
        case Cast(type=kind, attempt=attempt):
            word = "try_cast" if attempt else "cast"
            return _both(f"{word}({general(node.children[0].type)} as {general(kind)})")
        case Case():
            values = [c.type for i, c in enumerate(node.children) if i % 2 or i == len(node.children) - 1]
            return _both(f"case({_set(map(_copied, values) if len(set(values)) == 1 else values)})")
        case Field():
            return _both("field(struct)" if node.children[0].type.startswith("struct") else "field(other)")
        case Lambda() | Column():
            return ()
        case Call(name=name):
            return _of_call(name, node.children)


def whole(tree: Typed) -> Iterator[tuple[Typed, tuple[str, str]]]:
    """Every node of an expression with each of its pairs of signatures, the innermost first."""
    for child in tree.children:
        yield from whole(child)
    for pair in signatures(tree):
        yield tree, pair


def tokens(pattern: str) -> list[str]:
    """The different parts of a format of times: runs of a letter; ``text`` for any other text."""
    parts = [match[0] for match in _TOKEN.finditer(pattern)]
    return list(dict.fromkeys(part if part[0].isalpha() else "text" for part in parts)) or ["text"]


def _of_call(name: str, children: Sequence[Typed]) -> tuple[tuple[str, str], ...]:
    if name == "interval":
        return ()
    made = _of_constructor(name, [child.type for child in children])
    if made:
        return made
    if variadic(name):
        return _both(f"{name}({_set([child.type for child in children])}, ...)")
    if name in CONTAINERS:
        name = "element_at" if name == "[]" and children[0].type.startswith("map<") else name
        children = [replace(children[0], type=contained(children[0].type)), *children[1:]]
    rounds = arithmetic.rounds(name, children)
    if rounds is not None:
        return _both(f"{name}({', '.join(_digits(child.type, rounds=rounds) for child in children)})")
    forms = [_form(name, index, child) for index, child in enumerate(children)]
    written = {
        index for index, child in enumerate(children) if index in WORDS.get(name, ()) or isinstance(child.node, Lambda)
    }
    plain = [forms[index] if index in written else general(child.type) for index, child in enumerate(children)]
    index = FORMATS.get(name)
    if index is not None and index < len(children):
        node = children[index].node
        if isinstance(node, Literal) and _is_text(children[index]):
            return tuple(
                (f"{name}({', '.join(_put(forms, index, token))})", f"{name}({', '.join(_put(plain, index, token))})")
                for token in tokens(str(node.value))
            )
    index = PATTERNS.get(name)
    if index is not None and index < len(children) and _is_text(children[index]):
        forms[index] = plain[index] = "pattern"
    return ((f"{name}({', '.join(forms)})", f"{name}({', '.join(plain)})"),)


def _of_constructor(name: str, kinds: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The signatures of a struct, whose fields are copied each by itself, and of an array of values of one or two types; none of other calls."""
    if name == "named_struct":
        return tuple(dict.fromkeys(_both(f"{name}({_set([_copied(kind), 'string'])}, ...)")[0] for kind in kinds[1::2]))
    different = list(dict.fromkeys(map(general, kinds)))
    if name == "array" and (len(different) == 1 or (len(different) == 2 and len(kinds) != 2)):  # noqa: PLR2004 - each pair of types was compared
        return _both(f"{name}({different[0]}, {different[-1]})")
    return ()


def _digits(kind: str, *, rounds: bool) -> str:
    """The form of a number in arithmetic of decimals, which depends on whether the result is rounded."""
    return kind if not kind.startswith("decimal") else "decimal(38)" if rounds else "decimal"


def _is_text(child: Typed) -> bool:
    return isinstance(child.node, Literal) and isinstance(child.node.value, str)


def _put(forms: Sequence[str], index: int, token: str) -> list[str]:
    return [f"format {token}" if i == index else form for i, form in enumerate(forms)]


def _form(name: str, index: int, child: Typed) -> str:
    """The form of an argument: its type, and for a literal a class of its value."""
    kind, literal = general(child.type), child.node
    if isinstance(literal, Lambda):
        return f"{', '.join('xyz'[: len(literal.parameters)])} -> {kind}"
    if not isinstance(literal, Literal) or literal.value is None:
        return kind
    if index in WORDS.get(name, ()):
        return f"'{str(literal.value).lower()}'" if isinstance(literal.value, str) else str(literal.value)
    if kind in INTEGERS and isinstance(literal.value, int):
        return f"{kind} {'-' if literal.value < 0 else '+' if literal.value else '0'}"
    if name == "regexp_replace" and index > 1 and "$" in str(literal.value):
        return "string '$1'"
    if name in LIKES and index and "\\" in str(literal.value):
        return r"string '\'"
    if kind == "string":
        return "string 'x'" if literal.value else "string ''"
    return kind


def _set(kinds: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(sorted(general(kind) for kind in kinds)))


def _both(signature: str) -> tuple[tuple[str, str], ...]:
    return ((signature, signature),)
