"""Typed expressions in DuckDB's SQL. What DuckDB does not answer as Spark does is refused, never answered otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache

from floodmark.core.errors import CapabilityError
from floodmark.engines.local.casts import NotTranslated, cast, failure, sql_type, text
from floodmark.engines.local.patterns import regex, separator, strftime
from floodmark.spec.expressions import Expression, Typed
from floodmark.spec.expressions.tree import Call, Case, Cast, Column, Lambda, Literal
from floodmark.spec.expressions.widening import INTEGERS, as_decimal, common, common_of, digits, element, is_number

_MOST = 38
_NARROW = 18


@lru_cache(maxsize=4096)
def _translated(expression: Expression) -> str | NotTranslated:
    try:
        return sql(expression.tree)
    except NotTranslated as refusal:
        return refusal


def duckdb_sql(expression: Expression, where: str) -> str:
    """An expression in DuckDB's words, of the DuckDB type of its Spark type.

    Raises:
        CapabilityError: CAPABILITY-030, DuckDB does not compute it as Spark does.
    """
    translated = _translated(expression)
    if isinstance(translated, NotTranslated):
        raise unlike(where, f"{translated} in {expression.text!r}")
    return translated


def unlike(where: str, got: str) -> CapabilityError:
    """CAPABILITY-030: the local engine would answer otherwise than Spark."""
    fix = (
        "The local engine refuses what it would answer otherwise: run this test on Spark, by floodmark prove NAME --spark or "
        "floodmark.testing.spark.SparkCase."
    )
    return CapabilityError(
        where, "an expression the local engine computes as Spark does", got, fix, code="CAPABILITY-030"
    )


def sql(typed: Typed) -> str:
    """A node and all below it."""
    match typed.node:
        case Literal():
            return _literal(typed.node)
        case Column(name=name):
            return '"' + (typed.column or name).replace('"', '""') + '"'
        case Cast(type=target, attempt=attempt):
            return cast(sql(typed.children[0]), _known(typed.children[0]), target, attempt=attempt)
        case Case():
            return _case(typed)
        case Call(name=name):
            return _call(name, typed)
        case Lambda(parameters=parameters):
            return f"lambda {', '.join(_name(p) for p in parameters)}: {sql(typed.children[0])}"
        case _:
            raise _refused("fields of structs")


def _refused(what: str) -> NotTranslated:
    return NotTranslated(what)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _known(typed: Typed) -> str:
    if not typed.type:
        raise _refused("a value of unknown type")
    return typed.type


def _as(typed: Typed, kind: str) -> str:
    """A node, cast to a type as Spark does implicitly."""
    written = typed.node.value if isinstance(typed.node, Literal) and is_number(kind) else None
    if isinstance(written, str) and not re.fullmatch(r"\s*[-+]?\d+\s*", written):
        raise _refused(f"the text {written!r} as a number")  # whether Spark computes it depends on the other side
    return cast(sql(typed), _known(typed), kind)


def _literal(node: Literal) -> str:
    value, kind = node.value, node.type
    match kind:
        case "void":
            return "NULL"
        case "boolean":
            return str(value).lower()
        case "string":
            return text(_text(value))
        case "binary":
            assert isinstance(value, bytes)
            return f"from_hex('{value.hex()}')"
        case "date":
            return f"DATE '{_day(_text(value))}'"
        case "timestamp":
            return f"TIMESTAMPTZ '{_instant(_text(value))}'"
        case "double" | "float":
            return f"CAST('{value!r}' AS {sql_type(kind)})"
        case _ if kind in INTEGERS or digits(kind):
            return f"CAST('{value!s}' AS {sql_type(kind)})"
        case _:
            raise _refused(f"a literal of type {kind}")


def _text(value: object) -> str:
    assert isinstance(value, str)
    return value


def _day(written: str) -> str:
    try:
        return date.fromisoformat(written.strip()).isoformat()
    except ValueError:
        raise _refused(f"DATE {written!r}") from None


def _instant(written: str) -> str:
    if not re.fullmatch(
        r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)?)?", written.strip()
    ):
        raise _refused(f"TIMESTAMP {written!r}")
    read = datetime.fromisoformat(written.strip())
    instant = read if read.tzinfo else read.replace(tzinfo=UTC)
    return instant.astimezone(UTC).isoformat(" ")


def _case(typed: Typed) -> str:
    kind, children = typed.type, list(typed.children)
    if kind == "void":
        return "NULL"
    otherwise = _as(children.pop(), kind) if len(children) % 2 else f"CAST(NULL AS {sql_type(kind)})"
    pairs = zip(children[::2], children[1::2], strict=True)
    return f"CASE {' '.join(f'WHEN {sql(c)} THEN {_as(v, kind)}' for c, v in pairs)} ELSE {otherwise} END"


# ---- calls

Rule = Callable[[Typed], str]


def _call(name: str, typed: Typed) -> str:
    rule = _RULES.get(name)
    if rule is None:
        raise _refused(f"{name}(...)" if name.isidentifier() else f"the operator {name}")
    try:
        return f"({rule(typed)})"
    except (IndexError, ValueError, AssertionError):
        raise _refused(f"{name} of {len(typed.children)} arguments") from None


def _constant(typed: Typed) -> object:
    """The value of a literal argument."""
    if not isinstance(typed.node, Literal):
        raise _refused("an argument that is not written out")
    return typed.node.value


def _arithmetic(operator: str) -> Rule:
    def rule(typed: Typed) -> str:
        if len(typed.children) == 1:
            return sql(typed.children[0])
        left, right = typed.children
        kind = _known(typed)
        if kind in {"date", "timestamp"}:
            return _moved(operator, left, right, kind)
        if digits(kind):
            return _decimals(operator, left, right, kind)
        if not is_number(kind):
            raise _refused(f"{left.type} {operator} {right.type}")
        one, two = _as(left, kind), _as(right, kind)
        if operator == "/":
            return f"CASE WHEN {one} IS NULL THEN NULL WHEN {two} = 0 THEN {_ZERO} ELSE {one} / {two} END"
        if operator == "%":
            least = f"WHEN {two} = -1 THEN CAST(0 AS {sql_type(kind)}) " if kind in INTEGERS else ""
            return f"CASE WHEN {one} IS NULL THEN NULL WHEN {two} = 0 THEN {_ZERO} {least}ELSE {one} % {two} END"
        return f"{one} {operator} {two}"

    return rule


_ZERO = failure("DIVIDE_BY_ZERO", attempt=False)


def _decimals(operator: str, left: Typed, right: Typed, kind: str) -> str:
    one, two = (as_decimal(_number(side), side.node) for side in (left, right))
    known = digits(kind)
    assert one is not None
    assert two is not None
    assert known is not None
    (p1, s1), (p2, s2), (precision, scale) = one, two, known
    a, b = (_as(side, f"decimal({p},{s})") for side, (p, s) in ((left, one), (right, two)))
    whole = max(p1 - s1, p2 - s2) + max(s1, s2)
    exact = {"*": p1 + p2 + 1, "/": p1 - s1 + s2 + max(6, s1 + p2 + 1), "%": precision}.get(operator, whole + 1)
    if exact > _MOST:
        raise _refused(f"decimals of more than {_MOST} digits in between")
    if operator == "*":
        return f"CAST({_product(a, one, b, two)} AS {sql_type(kind)})"
    if operator == "/":
        quotient = f"spark_quotient({_unscaled(a)} * {10 ** (scale - s1 + s2)}, {_unscaled(b)})"
        shifted = f"spark_shifted({quotient}, {scale})"
        return f"CASE WHEN {a} IS NULL THEN NULL WHEN {b} = 0 THEN {_ZERO} ELSE CAST({shifted} AS {sql_type(kind)}) END"
    wide = f"DECIMAL({whole},{max(s1, s2)})"
    a, b = f"CAST({a} AS {wide})", f"CAST({b} AS {wide})"
    if operator == "%":
        return f"CASE WHEN {a} IS NULL THEN NULL WHEN {b} = 0 THEN {_ZERO} ELSE CAST({a} % {b} AS {sql_type(kind)}) END"
    return f"CAST({a} {operator} {b} AS {sql_type(kind)})"


def _unscaled(value: str) -> str:
    """The digits of a decimal, a whole number."""
    return f"CAST(replace(CAST({value} AS VARCHAR), '.', '') AS HUGEINT)"


def _product(left: str, one: tuple[int, int], right: str, two: tuple[int, int]) -> str:
    """A product of decimals; DuckDB multiplies those of up to 18 digits in 64 bits, so these are widened before."""
    (p1, s1), (p2, s2) = one, two
    if p1 + p2 > _NARROW >= max(p1, p2):
        p1 = _NARROW + 1
    return f"CAST({left} AS DECIMAL({p1},{s1})) * CAST({right} AS DECIMAL({p2},{s2}))"


def _number(typed: Typed) -> str:
    if typed.type not in INTEGERS and not digits(typed.type):
        raise _refused(f"a {typed.type} among decimals")
    return typed.type


def _div(typed: Typed) -> str:
    left, right = typed.children
    if not {left.type, right.type} <= {*INTEGERS, "void"}:
        raise _refused(f"{left.type} div {right.type}")
    one, two = _as(left, "bigint"), _as(right, "bigint")
    return f"CASE WHEN {one} IS NULL THEN NULL WHEN {two} = 0 THEN {_ZERO} ELSE {one} // {two} END"


def _pmod(typed: Typed) -> str:
    kind = _known(typed)
    if kind not in INTEGERS:
        raise _refused(f"pmod of {kind}")
    one, two = (_as(child, kind) for child in typed.children)
    remainder = f"({one} % {two})"
    return f"CASE WHEN {one} IS NULL THEN NULL WHEN {two} = 0 THEN {_ZERO} WHEN {two} = -1 THEN 0 WHEN {remainder} < 0 THEN ({remainder} + {two}) % {two} ELSE {remainder} END"


def _interval(typed: Typed) -> list[tuple[str, int]]:
    """(unit, count) of an interval literal."""
    node = typed.node
    if not isinstance(node, Call) or node.name != "interval":
        raise _refused("an interval that is not written out")
    parts = []
    for value, unit in zip(node.arguments[::2], node.arguments[1::2], strict=True):
        if (
            not isinstance(value, Literal)
            or not isinstance(unit, Literal)
            or not re.fullmatch(r"[+-]?\d+", str(value.value))
        ):
            raise _refused("an interval that is not a whole number")
        unit_name, count = str(unit.value).lower(), int(str(value.value))
        parts.append(("month", count * 12) if unit_name == "year" else (unit_name, count))
    months = sum(count for unit, count in parts if unit == "month")
    return [("month", months)] * bool(months) + [(unit, count) for unit, count in parts if unit != "month"]


_UNITS = frozenset({"year", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond"})


def _moved(operator: str, left: Typed, right: Typed, kind: str) -> str:
    if right.type in {"date", "timestamp"}:
        left, right = right, left
    if right.type in INTEGERS:
        return f"CAST({_as(left, 'date')} {operator} {_as(right, 'int')} AS DATE)"
    parts = _interval(right)
    if kind == "date" and any(unit not in {"year", "month", "week", "day"} for unit, _ in parts):
        raise _refused("a date and hours")
    moved = f"CAST({_as(left, kind)} AS TIMESTAMP)"
    for unit, count in parts:
        if unit not in _UNITS:
            raise _refused(f"an interval of {unit}")
        moved = f"({moved} {operator} to_{unit}s({count}))"
    return f"CAST({moved} AS {sql_type(kind)})"


def _compared(operator: str) -> Rule:
    def rule(typed: Typed) -> str:
        left, right = typed.children
        kind = _comparable([left.type, right.type])
        return f"{_as(left, kind)} {operator} {_as(right, kind)}"

    return rule


def _comparable(kinds: Sequence[str]) -> str:
    kind = common_of(list(kinds))
    if kind == "void":
        return "boolean"
    if not kind or element(kind) is not None or kind.startswith(("map", "struct", "interval")):
        raise _refused(f"values of type {kind or 'unknown'} compared")
    return kind


def _between(typed: Typed) -> str:
    value, low, high = typed.children
    one, two = _comparable([value.type, low.type]), _comparable([value.type, high.type])
    return f"({_as(value, one)} >= {_as(low, one)}) AND ({_as(value, two)} <= {_as(high, two)})"


def _in(typed: Typed) -> str:
    kind = _comparable(typed.kinds)
    value, *options = (_as(child, kind) for child in typed.children)
    return f"{value} IN ({', '.join(options)})"


def _logic(operator: str) -> Rule:
    return lambda typed: f" {operator} ".join(_as(child, "boolean") for child in typed.children)


def _like(word: str) -> Rule:
    def rule(typed: Typed) -> str:
        pattern = str(_constant(typed.children[1]))
        escape = str(_constant(typed.children[2])) if len(typed.children) > 2 else "\\"  # noqa: PLR2004 - ESCAPE
        rest = re.sub(re.escape(escape) + "[%_" + re.escape(escape) + "]", "", pattern)
        if escape in rest or len(escape) != 1:
            raise _refused(f"the pattern {pattern!r}")
        return f"{_as(typed.children[0], 'string')} {word} {text(pattern)} ESCAPE {text(escape)}"

    return rule


def _template(template: str, *kinds: str) -> Rule:
    """Arguments, cast to types (``*`` as they are), in a template."""

    def rule(typed: Typed) -> str:
        if len(typed.children) != len(kinds):
            raise _refused(f"{len(typed.children)} arguments")
        arguments = [
            sql(child) if kind == "*" else _as(child, kind) for child, kind in zip(typed.children, kinds, strict=True)
        ]
        return template.format(*arguments)

    return rule


def _of(kind: str, template: str) -> Rule:
    """One argument that has this type already; other types are refused."""

    def rule(typed: Typed) -> str:
        if [child.type for child in typed.children] != [kind]:
            raise _refused(f"a value of type {typed.children[0].type if typed.children else ''}")
        return template.format(sql(typed.children[0]))

    return rule


def _together(template: str) -> Rule:
    def rule(typed: Typed) -> str:
        kind = _known(typed)
        if kind == "void":
            return "NULL"
        return template.format(", ".join(_as(child, kind) for child in typed.children))

    return rule


def _greatest(name: str) -> Rule:
    def rule(typed: Typed) -> str:
        _comparable([_known(typed)])
        return _together(f"{name}({{0}})")(typed)

    return rule


def _if(typed: Typed) -> str:
    condition, yes, no = typed.children
    kind = _known(typed)
    return f"CASE WHEN {_as(condition, 'boolean')} THEN {_as(yes, kind)} ELSE {_as(no, kind)} END"


def _nvl2(typed: Typed) -> str:
    value, yes, no = typed.children
    kind = _known(typed)
    return f"CASE WHEN {sql(value)} IS NOT NULL THEN {_as(yes, kind)} ELSE {_as(no, kind)} END"


def _nullif(typed: Typed) -> str:
    left, right = typed.children
    kind = _comparable([left.type, right.type])
    return f"CASE WHEN {_as(left, kind)} = {_as(right, kind)} THEN NULL ELSE {sql(left)} END"


def _numeric(name: str) -> Rule:
    """abs, negative, positive."""

    def rule(typed: Typed) -> str:
        kind = _known(typed)
        if not is_number(kind):
            raise _refused(f"{name} of {kind}")
        return f"{name}({_as(typed.children[0], kind)})"

    return rule


def _round(typed: Typed) -> str:
    child, kind = typed.children[0], _known(typed)
    places = _constant(typed.children[1]) if len(typed.children) > 1 else 0
    if not isinstance(places, int) or not 0 <= places <= 10:  # noqa: PLR2004 - digits a DECIMAL(38, n) holds beside 1e16
        raise _refused(f"round to {places} places")
    if kind in INTEGERS:
        return sql(child)
    if digits(kind):
        return f"CAST({sql(child)} AS {sql_type(kind)})"
    if kind != "double":
        raise _refused(f"round of {kind}")
    value = _as(child, "double")
    written = f"CAST(CAST(CAST(CAST({value} AS VARCHAR) AS DECIMAL(38,{places})) AS VARCHAR) AS DOUBLE)"
    return f"CASE WHEN isfinite({value}) AND abs({value}) < 1e16 THEN {written} ELSE {value} END"


def _whole(name: str) -> Rule:
    def rule(typed: Typed) -> str:
        (child,) = typed.children
        if child.type in INTEGERS:
            return _as(child, "bigint")
        if digits(child.type):
            return f"CAST({name}({sql(child)}) AS {sql_type(_known(typed))})"
        value = _as(child, "double")
        return (
            f"CASE WHEN isnan({value}) THEN 0 WHEN {value} >= 9223372036854775807 THEN 9223372036854775807 "
            f"WHEN {value} <= -9223372036854775808 THEN CAST('-9223372036854775808' AS BIGINT) ELSE CAST({name}({value}) AS BIGINT) END"
        )

    return rule


def _bits(operator: str) -> Rule:
    def rule(typed: Typed) -> str:
        kind = _known(typed)
        one, two = (_as(child, kind) for child in typed.children)
        return f"xor({one}, {two})" if operator == "^" else f"{one} {operator} {two}"

    return rule


# ---- texts

_CASED = r"^[\x00-\x{DE}\x{E0}-\x{12F}\x{131}-\x{148}\x{14A}-\x{17E}\x{400}-\x{45F}\x{2000}-\x{206F}\x{20A0}-\x{20CF}\x{3000}-\x{9FFF}\x{AC00}-\x{D7A3}\x{1F300}-\x{1FAFF}]*$"
"""Characters whose upper and lower case both engines know alike."""


def _cased(name: str) -> Rule:
    def rule(typed: Typed) -> str:
        value = _as(typed.children[0], "string")
        other = failure(f"CAPABILITY-030 {name} of a letter whose case is more than one letter", attempt=False)
        return f"CASE WHEN regexp_matches({value}, {text(_CASED)}) THEN {name}({value}) WHEN {value} IS NOT NULL THEN {other} END"

    return rule


def _length(typed: Typed) -> str:
    (child,) = typed.children
    if child.type == "binary":
        return f"CAST(octet_length({sql(child)}) AS INTEGER)"
    return f"CAST(length({_as(child, 'string')}) AS INTEGER)"


def _trim(name: str) -> Rule:
    def rule(typed: Typed) -> str:
        _text_only(typed)
        characters = _as(typed.children[1], "string") if len(typed.children) > 1 else "' '"
        return f"{name}({_as(typed.children[0], 'string')}, {characters})"

    return rule


def _text_only(typed: Typed) -> None:
    if typed.type != "string":
        raise _refused(f"a value of type {typed.type or 'unknown'}")


def _substring(typed: Typed) -> str:
    _text_only(typed)
    value, start, *count = typed.children
    size = _as(count[0], "int") if count else "2147483647"
    return f"spark_substring({_as(value, 'string')}, CAST({_as(start, 'int')} AS BIGINT), CAST({size} AS BIGINT))"


def _left(typed: Typed) -> str:
    _text_only(typed)
    value, count = typed.children
    return f"spark_substring({_as(value, 'string')}, CAST(1 AS BIGINT), CAST({_as(count, 'int')} AS BIGINT))"


def _right(typed: Typed) -> str:
    _text_only(typed)
    value, count = (_as(child, kind) for child, kind in zip(typed.children, ("string", "int"), strict=True))
    return f"CASE WHEN {value} IS NULL THEN NULL WHEN {count} <= 0 THEN '' ELSE spark_substring({value}, -CAST({count} AS BIGINT), 2147483647) END"


def _pad(name: str) -> Rule:
    def rule(typed: Typed) -> str:
        _text_only(typed)
        size = _constant(typed.children[1])
        filler = _constant(typed.children[2]) if len(typed.children) > 2 else " "  # noqa: PLR2004 - a filler
        if not isinstance(size, int) or size < 0 or not filler:
            raise _refused(f"{name} with nothing")
        return f"{name}({_as(typed.children[0], 'string')}, {size}, {text(str(filler))})"

    return rule


def _replace(typed: Typed) -> str:
    value, search, *by = typed.children
    if not _constant(search):
        raise _refused("replace of nothing")
    return f"replace({_as(value, 'string')}, {sql(search)}, {_as(by[0], 'string') if by else text('')})"


def _repeat(typed: Typed) -> str:
    count = _constant(typed.children[1])
    if not isinstance(count, int) or count < 0:
        raise _refused("repeat")
    return f"repeat({_as(typed.children[0], 'string')}, {count})"


def _concat(typed: Typed) -> str:
    kind = _known(typed)
    if kind == "string" and typed.children:
        return " || ".join(_as(child, "string") for child in typed.children)
    if element(kind) is None or len(typed.children) != 2:  # noqa: PLR2004 - two arrays
        raise _refused(f"concat of {kind}")
    one, two = (_as(child, kind) for child in typed.children)
    return f"CASE WHEN {one} IS NULL OR {two} IS NULL THEN NULL ELSE list_concat({one}, {two}) END"


def _concat_ws(typed: Typed) -> str:
    if any(element(child.type) is not None for child in typed.children):
        raise _refused("concat_ws of arrays")
    return f"concat_ws({', '.join(_as(child, 'string') for child in typed.children)})"


def _found(typed: Typed) -> str:
    """Locate and position: what is looked for comes first."""
    needle, value = typed.children
    return f"CAST(instr({_as(value, 'string')}, {_as(needle, 'string')}) AS INTEGER)"


def _matches(typed: Typed) -> str:
    pattern = regex(str(_constant(typed.children[1])))
    return f"regexp_matches({_as(typed.children[0], 'string')}, {text(pattern)})"


def _extracted(typed: Typed) -> str:
    pattern = str(_constant(typed.children[1]))
    group = _constant(typed.children[2]) if len(typed.children) > 2 else 1  # noqa: PLR2004 - a group
    if not isinstance(group, int) or "$" in pattern or not 0 <= group <= re.compile(pattern).groups:
        raise _refused(f"the pattern {pattern!r}")
    return f"regexp_extract({_as(typed.children[0], 'string')}, {text(regex(pattern))}, {group})"


def _substituted(typed: Typed) -> str:
    value, searched, by = typed.children
    pattern, replacement = str(_constant(searched)), str(_constant(by))
    if "$" in pattern or "\\" in replacement or not pattern or re.compile(pattern).match(""):
        raise _refused(f"the pattern {pattern!r}")
    translated = re.sub(r"\$(\d)", r"\\\1", replacement)
    if "$" in translated:
        raise _refused(f"the replacement {replacement!r}")
    return f"regexp_replace({_as(value, 'string')}, {text(regex(pattern))}, {text(translated)}, 'g')"


def _split(typed: Typed) -> str:
    value, by = typed.children
    return f"string_split_regex({_as(value, 'string')}, {text(separator(str(_constant(by))))})"


def _split_part(typed: Typed) -> str:
    value, by, part = typed.children
    number = _constant(part)
    if not isinstance(number, int) or number < 1 or not _constant(by):
        raise _refused("split_part")
    return f"split_part({_as(value, 'string')}, {sql(by)}, {number})"


def _digest(typed: Typed) -> str:
    if _constant(typed.children[1]) != 256:  # noqa: PLR2004 - bits
        raise _refused("sha2 of other than 256 bits")
    return f"sha256({_bytes(typed.children[0])})"


def _bytes(typed: Typed) -> str:
    return sql(typed) if typed.type == "binary" else _as(typed, "string")


def _hashed(typed: Typed) -> str:
    state = "CAST(42 AS BIGINT)"
    for child in typed.children:
        value = _hash_of(child)
        state = (
            state
            if value is None
            else f"CASE WHEN {sql(child)} IS NULL THEN {state} ELSE {value.format(state=state)} END"
        )
    return state


def _hash_of(child: Typed) -> str | None:
    """The hash of a value that is not null; None for the type that is null alone."""
    value = sql(child)
    match child.type:
        case "void":
            return None
        case "bigint":
            return f"spark_hash_long({value}, {{state}})"
        case "tinyint" | "smallint" | "int" | "boolean":
            return f"spark_hash_int(CAST({value} AS INTEGER), {{state}})"
        case "string":
            return f"spark_hash_bytes(encode({value}), {{state}})"
        case "binary":
            return f"spark_hash_bytes({value}, {{state}})"
        case "timestamp":
            return f"spark_hash_long(epoch_us({value}), {{state}})"
        case "date":
            return f"spark_hash_int(CAST({value} - DATE '1970-01-01' AS INTEGER), {{state}})"
        case "double":
            return f"spark_hash_double({value}, {{state}})"
        case kind if (known := digits(kind)) and known[0] <= _NARROW:
            return f"spark_hash_long(CAST({_unscaled(value)} AS BIGINT), {{state}})"
        case kind:
            raise _refused(f"xxhash64 of {kind}")


# ---- times


def _part(template: str) -> Rule:
    """A part of a date or a timestamp, an integer."""

    def rule(typed: Typed) -> str:
        return f"CAST({template.format(_naive(typed.children[-1]))} AS INTEGER)"

    return rule


def _naive(typed: Typed) -> str:
    """A date, or a timestamp as the clock of UTC shows it."""
    if typed.type == "date":
        return sql(typed)
    return f"CAST({_as(typed, 'timestamp')} AS TIMESTAMP)"


_PARTS: Mapping[str, str] = {
    **dict.fromkeys(("year", "y", "years", "yr", "yrs"), "year({0})"),
    **dict.fromkeys(("quarter", "qtr"), "quarter({0})"),
    **dict.fromkeys(("month", "mon", "mons", "months"), "month({0})"),
    **dict.fromkeys(("week", "w", "weeks"), "weekofyear({0})"),
    **dict.fromkeys(("day", "d", "days"), "day({0})"),
    **dict.fromkeys(("dayofweek", "dow"), "dayofweek({0}) + 1"),
    **dict.fromkeys(("dayofweek_iso", "dow_iso"), "isodow({0})"),
    "doy": "dayofyear({0})",
    "yearofweek": "isoyear({0})",
    **dict.fromkeys(("hour", "h", "hours", "hr", "hrs"), "hour({0})"),
    **dict.fromkeys(("minute", "m", "min", "mins", "minutes"), "minute({0})"),
}


def _of_part(typed: Typed) -> str:
    part, source = str(_constant(typed.children[0])).lower(), typed.children[1]
    if source.type not in {"date", "timestamp"}:
        raise _refused(f"a part of {source.type}")
    if part in _PARTS:
        return f"CAST({_PARTS[part].format(_naive(source))} AS INTEGER)"
    micros = f"CAST(microsecond(CAST({_naive(source)} AS TIMESTAMP)) AS DECIMAL(8,0))"
    return f"CAST({micros} * CAST('0.000001' AS DECIMAL(6,6)) AS DECIMAL(8,6))"


_TRUNCATED: Mapping[str, str] = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    **dict.fromkeys(("month", "mon", "mm"), "month"),
    **dict.fromkeys(("day", "dd"), "day"),
    **{unit: unit for unit in ("quarter", "week", "hour", "minute", "second", "millisecond", "microsecond")},
}


def _date_trunc(typed: Typed) -> str:
    unit = _TRUNCATED.get(str(_constant(typed.children[0])).lower())
    if unit is None:
        raise _refused(f"date_trunc to {_constant(typed.children[0])!r}")
    moment = f"CAST({_as(typed.children[1], 'timestamp')} AS TIMESTAMP)"
    return f"CAST(date_trunc('{unit}', {moment}) AS TIMESTAMPTZ)"


def _trunc(typed: Typed) -> str:
    unit = _TRUNCATED.get(str(_constant(typed.children[1])).lower())
    if unit not in {"year", "quarter", "month", "week"}:
        raise _refused(f"trunc to {_constant(typed.children[1])!r}")
    return f"CAST(date_trunc('{unit}', {_as(typed.children[0], 'date')}) AS DATE)"


def _date_format(typed: Typed) -> str:
    value, pattern = typed.children
    moment = f"CAST({_as(value, 'timestamp')} AS TIMESTAMP)"
    written = f"strftime({moment}, {text(strftime(str(_constant(pattern))))})"
    other = failure("CAPABILITY-030 date_format of a year outside 1000 to 9999", attempt=False)
    return f"CASE WHEN year({moment}) BETWEEN 1000 AND 9999 THEN {written} WHEN {moment} IS NOT NULL THEN {other} END"


_LENGTHS = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
}


def _difference(typed: Typed) -> str:
    unit = str(_constant(typed.children[0])).lower().removesuffix("s")
    if unit not in _LENGTHS:
        raise _refused(f"timestampdiff in {unit}s")
    one, two = (_as(child, "timestamp") for child in typed.children[1:])
    return f"(epoch_us({two}) - epoch_us({one})) // {_LENGTHS[unit]}"


def _added(typed: Typed) -> str:
    unit = str(_constant(typed.children[0])).lower().removesuffix("s")
    if unit not in _UNITS:
        raise _refused(f"timestampadd in {unit}s")
    count, moment = typed.children[1:]
    return f"CAST(CAST({_as(moment, 'timestamp')} AS TIMESTAMP) + to_{unit}s({_as(count, 'int')}) AS TIMESTAMPTZ)"


def _local(typed: Typed) -> str:
    moment, zone = typed.children
    name = str(_constant(zone))
    if "/" not in name and name != "UTC":
        raise _refused(f"the zone {name!r}")
    value = _as(moment, "timestamp")
    other = failure("CAPABILITY-030 local time before 1900", attempt=False)
    local = f"CAST(timezone({text(name)}, {value}) AS TIMESTAMPTZ)"
    return f"CASE WHEN year({value}) >= 1900 THEN {local} WHEN {value} IS NOT NULL THEN {other} END"


def _unix_timestamp(typed: Typed) -> str:
    """Seconds since 1970, cut towards 1970; ``unix_seconds`` cuts towards the past."""
    (child,) = typed.children
    if child.type not in {"timestamp", "date"}:
        raise _refused(f"a value of type {child.type}")
    return f"epoch_us({_as(child, 'timestamp')}) // 1000000"


def _epoch(factor: int) -> Rule:
    """Microseconds since 1970, divided."""

    def rule(typed: Typed) -> str:
        (child,) = typed.children
        return f"spark_floor_div(epoch_us({_as(child, 'timestamp')}), {factor})"

    return rule


def _moment(factor: int) -> Rule:
    def rule(typed: Typed) -> str:
        (child,) = typed.children
        if child.type not in INTEGERS:
            raise _refused(f"a moment of {child.type}")
        return f"CAST(make_timestamp({_as(child, 'bigint')} * {factor}) AS TIMESTAMPTZ)"

    return rule


# ---- arrays


def _array(typed: Typed) -> str:
    inner = element(_known(typed))
    assert inner is not None
    if "void" in inner or not typed.children:
        raise _refused("an array of nothing")
    return f"list_value({', '.join(_as(child, inner) for child in typed.children)})"


def _items(typed: Typed) -> str:
    if element(typed.type) is None:
        raise _refused(f"an element of {typed.type or 'an unknown type'}")
    return sql(typed)


_OUTSIDE = failure("INVALID_ARRAY_INDEX", attempt=False)


def _item(typed: Typed) -> str:
    items, place = _items(typed.children[0]), _as(typed.children[1], "bigint")
    return f"CASE WHEN {items} IS NULL OR {place} IS NULL THEN NULL WHEN {place} < 0 OR {place} >= len({items}) THEN {_OUTSIDE} ELSE list_extract({items}, {place} + 1) END"


def _element_at(typed: Typed) -> str:
    items, place = _items(typed.children[0]), _as(typed.children[1], "bigint")
    return f"CASE WHEN {items} IS NULL OR {place} IS NULL THEN NULL WHEN {place} = 0 OR abs({place}) > len({items}) THEN {_OUTSIDE} ELSE list_extract({items}, {place}) END"


def _get(typed: Typed) -> str:
    items, place = _items(typed.children[0]), _as(typed.children[1], "bigint")
    return f"CASE WHEN {place} < 0 OR {place} >= len({items}) THEN NULL ELSE list_extract({items}, {place} + 1) END"


def _contains(typed: Typed) -> str:
    array, value = typed.children
    of = element(array.type)
    kind = common(of, value.type) if of else None
    if not kind or kind != of:
        raise _refused(f"array_contains of {array.type} and {value.type}")
    items, wanted = sql(array), _as(value, kind)
    return (
        f"CASE WHEN {items} IS NULL OR {wanted} IS NULL THEN NULL WHEN list_contains({items}, {wanted}) THEN true "
        f"WHEN list_count({items}) < len({items}) THEN NULL ELSE false END"
    )


def _sorted(typed: Typed) -> str:
    ascending = _constant(typed.children[1]) if len(typed.children) > 1 else True
    order = "'ASC', 'NULLS FIRST'" if ascending else "'DESC', 'NULLS LAST'"
    return f"list_sort({_items(typed.children[0])}, {order})"


def _lambda(name: str) -> Rule:
    def rule(typed: Typed) -> str:
        array, function = typed.children
        if not isinstance(function.node, Lambda) or len(function.node.parameters) != 1:
            raise _refused(f"{name} with a place")
        return f"{name}({_items(array)}, {sql(function)})"

    return rule


def _reversed(typed: Typed) -> str:
    return f"list_reverse({_items(typed.children[0])})"


def _conversion(kind: str) -> Rule:
    return lambda typed: _as(typed.children[0], kind)


_RULES: Mapping[str, Rule] = {
    **{name: _arithmetic(name) for name in "+-*/%"},
    "mod": _arithmetic("%"),
    "div": _div,
    "pmod": _pmod,
    "negative": _numeric("-"),
    "positive": _numeric("+"),
    "abs": _numeric("abs"),
    **{name: _bits(name) for name in "&|^"},
    "~": _template("~{0}", "*"),
    "zeroifnull": _together("coalesce({0}, 0)"),
    "nullifzero": _template("CASE WHEN {0} = 0 THEN NULL ELSE {0} END", "*"),
    "octet_length": _template("CAST(strlen({0}) AS INTEGER)", "string"),
    "log": _template("CASE WHEN {0} > 0 THEN ln({0}) END", "double"),
    **{name: _compared(name) for name in ("=", "<>", "<", "<=", ">", ">=")},
    **dict.fromkeys(("<=>", "equal_null"), _compared("IS NOT DISTINCT FROM")),
    "between": _between,
    "in": _in,
    "and": _logic("AND"),
    "or": _logic("OR"),
    "not": _template("NOT {0}", "boolean"),
    "like": _like("LIKE"),
    "ilike": _like("ILIKE"),
    **dict.fromkeys(("rlike", "regexp", "regexp_like"), _matches),
    "isnull": _template("{0} IS NULL", "*"),
    "isnotnull": _template("{0} IS NOT NULL", "*"),
    "isnan": _template("coalesce(isnan({0}), false)", "double"),
    **dict.fromkeys(("coalesce", "ifnull", "nvl"), _together("coalesce({0})")),
    "if": _if,
    "nvl2": _nvl2,
    "nullif": _nullif,
    "nanvl": _template("CASE WHEN isnan({0}) THEN {1} ELSE {0} END", "double", "double"),
    "greatest": _greatest("greatest"),
    "least": _greatest("least"),
    "round": _round,
    **dict.fromkeys(("ceil", "ceiling"), _whole("ceil")),
    "floor": _whole("floor"),
    "sqrt": _template("CASE WHEN {0} < 0 THEN 'NaN'::DOUBLE ELSE sqrt({0}) END", "double"),
    "exp": _template("exp({0})", "double"),
    **{name: _template(f"CASE WHEN {{0}} > 0 THEN {name}({{0}}) END", "double") for name in ("ln", "log10", "log2")},
    **dict.fromkeys(("pow", "power"), _template("pow({0}, {1})", "double", "double")),
    **dict.fromkeys(
        ("sign", "signum"),
        _template(
            "CASE WHEN isnan({0}) OR {0} = 0 THEN {0} WHEN {0} > 0 THEN 1.0::DOUBLE WHEN {0} < 0 THEN -1.0::DOUBLE END",
            "double",
        ),
    ),
    **{name: _template(f"{name}({{0}})", "double") for name in ("atan", "radians", "degrees")},
    "pi": lambda _: "pi()",
    **dict.fromkeys(("upper", "ucase"), _cased("upper")),
    **dict.fromkeys(("lower", "lcase"), _cased("lower")),
    **dict.fromkeys(("length", "len", "char_length", "character_length"), _length),
    **{name: _trim(name) for name in ("trim", "ltrim", "rtrim")},
    "btrim": _trim("trim"),
    **dict.fromkeys(("substring", "substr"), _substring),
    "left": _left,
    "right": _right,
    "lpad": _pad("lpad"),
    "rpad": _pad("rpad"),
    "replace": _replace,
    "repeat": _repeat,
    **dict.fromkeys(("concat", "||"), _concat),
    "concat_ws": _concat_ws,
    "instr": _template("CAST(instr({0}, {1}) AS INTEGER)", "string", "string"),
    **dict.fromkeys(("locate", "position"), _found),
    "startswith": _template("starts_with({0}, {1})", "string", "string"),
    "endswith": _template("suffix({0}, {1})", "string", "string"),
    "contains": _template("contains({0}, {1})", "string", "string"),
    "regexp_extract": _extracted,
    "regexp_replace": _substituted,
    "split": _split,
    "split_part": _split_part,
    "md5": lambda typed: f"md5({_bytes(typed.children[0])})",
    **dict.fromkeys(("sha1", "sha"), lambda typed: f"sha1({_bytes(typed.children[0])})"),
    "sha2": _digest,
    "xxhash64": _hashed,
    **{
        name: _part(f"{name}({{0}})")
        for name in ("year", "month", "quarter", "dayofyear", "weekofyear", "hour", "minute", "second")
    },
    **dict.fromkeys(("day", "dayofmonth"), _part("day({0})")),
    "dayofweek": _part("dayofweek({0}) + 1"),
    "weekday": _part("isodow({0}) - 1"),
    **dict.fromkeys(("extract", "date_part", "datepart"), _of_part),
    "date_trunc": _date_trunc,
    "trunc": _trunc,
    "date_format": _date_format,
    "date_add": _template("CAST({0} + {1} AS DATE)", "date", "int"),
    "date_sub": _template("CAST({0} - {1} AS DATE)", "date", "int"),
    **dict.fromkeys(("datediff", "date_diff"), _template("CAST({0} - {1} AS INTEGER)", "date", "date")),
    "add_months": _template("CAST({0} + to_months({1}) AS DATE)", "date", "int"),
    "last_day": _template("last_day({0})", "date"),
    "make_date": _template("make_date({0}, {1}, {2})", "int", "int", "int"),
    "to_date": _template("{0}", "date"),
    "to_timestamp": _template("{0}", "timestamp"),
    "unix_seconds": _epoch(1_000_000),
    "unix_millis": _epoch(1_000),
    "unix_micros": _epoch(1),
    **dict.fromkeys(("unix_timestamp", "to_unix_timestamp"), _unix_timestamp),
    "unix_date": _template("CAST({0} - DATE '1970-01-01' AS INTEGER)", "date"),
    "date_from_unix_date": _template("CAST(DATE '1970-01-01' + {0} AS DATE)", "int"),
    "timestamp_seconds": _moment(1_000_000),
    "timestamp_millis": _moment(1_000),
    "timestamp_micros": _moment(1),
    "timestampdiff": _difference,
    "timestampadd": _added,
    "from_utc_timestamp": _local,
    "dayname": _template("strftime({0}, '%a')", "date"),
    "monthname": _template("strftime({0}, '%b')", "date"),
    "array": _array,
    "[]": _item,
    "element_at": _element_at,
    "get": _get,
    **dict.fromkeys(
        ("size", "cardinality", "array_size"), lambda typed: f"CAST(len({_items(typed.children[0])}) AS INTEGER)"
    ),
    "array_contains": _contains,
    "array_max": lambda typed: f"list_max({_items(typed.children[0])})",
    "array_min": lambda typed: f"list_min({_items(typed.children[0])})",
    "sort_array": _sorted,
    "transform": _lambda("list_transform"),
    "filter": _lambda("list_filter"),
    "reverse": _reversed,
    **{
        kind: _conversion(kind)
        for kind in ("bigint", "int", "smallint", "tinyint", "double", "string", "boolean", "date", "timestamp")
    },
}
"""Function or operator -> its translation. Names that are missing are refused."""
