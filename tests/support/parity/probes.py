"""The expressions both engines are asked for."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from parity.templates import OPERATORS, SPECIAL, TEMPLATES
from parity.values import KINDS, SCHEMA

from floodmark.core.errors import DefinitionError
from floodmark.engines.embedded.parity.signatures import signatures
from floodmark.spec.expressions import expression
from floodmark.spec.expressions.arity import COUNTS, takes
from floodmark.spec.expressions.functions import IMPURE, names
from floodmark.spec.expressions.tree import Call

SINGLE = tuple(KINDS)
PAIRED = tuple(
    kind for kind in KINDS if kind not in {"array<boolean>", "array<date>", "array<timestamp>", "decimal(38,0)"}
    and not kind.startswith("array<array")
)  # fmt: skip
PLAIN = ("int", "bigint", "double", "decimal(12,3)", "string", "date", "timestamp", "array<bigint>", "array<string>")
"""Types of columns beside which constants stand."""
LITERALS = {
    "int": ("2", "1", "3", "10", "-1", "-2", "0", "100"),
    "bigint": ("5000000000L",),
    "string": ("'a'", "'b'", "'ab'", "'é'", "'12'", "'2020-01-31'", "''", "' '", "','", "'UTC'", "'a%'"),
    "double": ("0.5D", "2.5D"),
    "decimal(12,3)": ("1.5", "2.345"),
    "boolean": ("true",),
    "date": ("DATE '2020-01-31'",),
    "timestamp": ("TIMESTAMP '2020-01-31 10:11:12'",),
    "array<int>": ("array(1, 2)",),
    "array<string>": ("array('a', 'b')",),
}
FEW = {
    **{kind: some[:1] for kind, some in LITERALS.items()},
    "int": ("2", "-1", "0", "100"),
    "string": ("'a'", "''", "'12'", "'2020-01-31'"),
}
LARGE = frozenset(
    [
        "repeat",
        "space",
        "lpad",
        "rpad",
        "array_repeat",
        "sequence",
        "format_number",
        "factorial",
        "randstr",
        "conv",
        "bin",
    ]
)
"""Functions whose answer grows with a number: no large ones."""
SKIPPED = frozenset(
    [
        "raise_error",
        "assert_true",
        "when",
        "struct",
        "named_struct",
        "map",
        "interval",
        ":",
        "case",
        "cast",
        "[]",
        "!=",
        "==",
        "!>",
        "!<",
    ]
) | frozenset(name for group in IMPURE.values() for name in group.split())
SAMPLED = re.compile(
    r"^(hll|kll|theta|tuple|st|xpath|vector|approx|bitmap|aes|try_aes|schema_of|from_|to_xml|to_csv|variant|try_variant|parse_json|"
    r"try_parse_json|is_v|sentences)"
)


def usual() -> Iterator[str]:
    """Every function of one and of two arguments with columns of every type."""
    for name in sorted(names()):
        if name in SKIPPED or name not in COUNTS:
            continue
        if takes(name, 0):
            yield call(name)
        if takes(name, 1):
            yield from (call(name, column(kind, 1)) for kind in SINGLE if not _endless(name, (kind,)))
            yield call(name, "NULL")
        if takes(name, 2):
            for kinds in itertools.product(PAIRED, PAIRED):
                if not _endless(name, kinds):
                    yield call(name, column(kinds[0], 1), column(kinds[1], 2))
            for kind in ("bigint", "string", "double", "date", "timestamp", "array<bigint>"):
                yield call(name, column(kind, 1), "NULL")
                yield call(name, "NULL", column(kind, 1))


def written(accepted: Iterable[str]) -> Iterator[str]:
    """The same with constants on either side, for the functions of two arguments that Spark takes so, or takes no columns for."""
    taken = set(accepted)
    for name in sorted(names()):
        if name in SKIPPED or name not in COUNTS:
            continue
        if takes(name, 1):
            yield from (call(name, literal) for some in LITERALS.values() for literal in some)
        if not takes(name, 2) or name == "sequence":
            continue
        pairs = [
            pair
            for pair in itertools.product(PLAIN, PLAIN)
            if call(name, column(pair[0], 1), column(pair[1], 2)) in taken
        ]
        some = bool(pairs)
        for left, right in pairs or itertools.product(("string", "timestamp", "date", "bigint", "double"), LITERALS):
            for literal in FEW.get(right, ()):
                yield call(name, column(left, 1), literal)
            for literal in FEW.get(left, ())[:3] if some else ():
                yield call(name, literal, column(right, 1))


def special() -> Iterator[str]:
    """Operators, casts, and calls of three arguments and more."""
    for left, right in itertools.product(KINDS, KINDS):
        yield f"CAST({column(left, 1)} AS {right})"
        yield f"TRY_CAST({column(left, 1)} AS {right})"
    for kind in KINDS:
        yield column(kind, 1)
        yield f"CAST(NULL AS {kind})"
    yield from SPECIAL
    for operator, (left, right) in itertools.product(OPERATORS, itertools.product(PAIRED, PAIRED)):
        yield f"{column(left, 1)} {operator} {column(right, 2)}"
    for template in TEMPLATES:
        yield from filled(template)


def filled(template: str) -> Iterator[str]:
    """A template with columns, with one constant, and with constants behind the first argument."""
    places = re.findall(r"\{([^{}]+)\}", template)
    columns = [column(kind, n) for n, kind in enumerate(places, 1)]
    form = re.sub(r"\{[^{}]+\}", "{}", template)
    yield form.format(*columns)
    for place, kind in enumerate(places):
        for literal in LITERALS.get(kind, ()):
            yield form.format(*columns[:place], literal, *columns[place + 1 :])
    choices = [LITERALS.get(kind, ())[:5] for kind in places[1:]]
    if len(places) > 1 and all(choices):
        for some in itertools.product(*choices):
            yield form.format(columns[0], *some)


def column(kind: str, number: int) -> str:
    """The name of a column of a type."""
    return f"{KINDS[kind]}{min(number, 3)}"


def call(name: str, *arguments: str) -> str:
    """A call or an operator as text."""
    match name, len(arguments):
        case ("not", 1):
            return f"NOT {arguments[0]}"
        case ("between", _):
            return ""
        case (_, 2) if not name.isidentifier() or name in {"and", "or", "in", "like", "ilike", "rlike", "div"}:
            return (
                f"{arguments[0]} IN ({arguments[1]})"
                if name == "in"
                else f"{arguments[0]} {name.upper()} {arguments[1]}"
            )
        case (_, 1) if not name.isidentifier():
            return f"{name} {arguments[0]}"
        case ("extract", _):
            return ""
        case _:
            return f"{name}({', '.join(arguments)})"


def readable(texts: Iterable[str], names: Collection[str] = ()) -> list[str]:
    """Those that floodmark's own grammar takes, each once; with names, those whose outermost call is one of them."""
    found = dict.fromkeys(text for text in texts if text)
    return [text for text in found if (name := _outermost(text)) is not None and (not names or name in names)]


def few(texts: Iterable[str], most: int = 3, names: Collection[str] = ()) -> list[str]:
    """At most so many of each signature, in the types that are written: a text that Spark casts takes no number's place."""
    counts: Counter[str] = Counter()
    found = []
    for text in readable(texts, names):
        forms = [exact for exact, _ in signatures(expression(text, SCHEMA, "parity").tree)]
        if any(counts[form] < most for form in forms):
            found.append(text)
            counts.update(forms)
    return found


def _outermost(text: str) -> str | None:
    """The name of the outermost call, empty of another node; None of what floodmark's grammar refuses."""
    try:
        node = expression(text, SCHEMA, "parity").tree.node
    except DefinitionError:
        return None
    return node.name if isinstance(node, Call) else ""


def _endless(name: str, kinds: tuple[str, ...]) -> bool:
    if name in {"element_at", "try_element_at"} and kinds[-1] == "int":
        return True  # Spark 4.2 reads outside the array at -2147483648, and Java ends
    return name == "sequence" or (
        name in LARGE
        and any(
            kind in {"int", "bigint", "smallint", "double", "float"} or kind.startswith("decimal") for kind in kinds
        )
    )
