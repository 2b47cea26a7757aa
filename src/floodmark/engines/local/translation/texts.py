"""Functions of text."""

from __future__ import annotations

import re
from collections.abc import Mapping

from floodmark.engines.local.casts import NotTranslated, failure, text
from floodmark.engines.local.patterns import regex, separator
from floodmark.engines.local.translation.operand import Operand, Rule, template
from floodmark.spec.expressions.widening import element

_CASED = r"^[\x00-\x{DE}\x{E0}-\x{12F}\x{131}-\x{148}\x{14A}-\x{17E}\x{400}-\x{45F}\x{2000}-\x{206F}\x{20A0}-\x{20CF}\x{3000}-\x{9FFF}\x{AC00}-\x{D7A3}\x{1F300}-\x{1FAFF}]*$"
"""Characters whose upper and lower case both engines know alike."""


def _cased(name: str) -> Rule:
    def rule(call: Operand) -> str:
        value = call.children[0].cast("string")
        other = failure(f"CAPABILITY-030 {name} of a letter whose case is more than one letter", attempt=False)
        return f"CASE WHEN regexp_matches({value}, {text(_CASED)}) THEN {name}({value}) WHEN {value} IS NOT NULL THEN {other} END"

    return rule


def _length(call: Operand) -> str:
    (value,) = call.children
    if value.type == "binary":
        return f"CAST(octet_length({value.sql()}) AS INTEGER)"
    return f"CAST(length({value.cast('string')}) AS INTEGER)"


def _trim(name: str) -> Rule:
    def rule(call: Operand) -> str:
        _refuse_bytes(call)
        characters = call.children[1].cast("string") if len(call.children) > 1 else "' '"
        return f"{name}({call.children[0].cast('string')}, {characters})"

    return rule


def _refuse_bytes(call: Operand) -> None:
    if call.type != "string":
        raise NotTranslated(f"a value of type {call.type or 'unknown'}")


def _substring(call: Operand) -> str:
    _refuse_bytes(call)
    value, start, *size = call.children
    return _part(value, f"CAST({start.cast('int')} AS BIGINT)", size[0].cast("int") if size else "2147483647")


def _left(call: Operand) -> str:
    _refuse_bytes(call)
    value, size = call.children
    return _part(value, "CAST(1 AS BIGINT)", size.cast("int"))


def _part(value: Operand, start: str, size: str) -> str:
    return f"spark_substring({value.cast('string')}, {start}, CAST({size} AS BIGINT))"


def _right(call: Operand) -> str:
    _refuse_bytes(call)
    value, size = (child.cast(kind) for child, kind in zip(call.children, ("string", "int"), strict=True))
    return f"CASE WHEN {value} IS NULL THEN NULL WHEN {size} <= 0 THEN '' ELSE spark_substring({value}, -CAST({size} AS BIGINT), 2147483647) END"


def _pad(name: str) -> Rule:
    def rule(call: Operand) -> str:
        _refuse_bytes(call)
        size, filler = call.children[1].constant, call.option(2, " ")
        if not isinstance(size, int) or size < 0 or not filler:
            raise NotTranslated(f"{name} with nothing")
        return f"{name}({call.children[0].cast('string')}, {size}, {text(str(filler))})"

    return rule


def _replace(call: Operand) -> str:
    value, search, *replacement = call.children
    if not search.constant:
        raise NotTranslated("replace of nothing")
    return (
        f"replace({value.cast('string')}, {search.sql()}, {replacement[0].cast('string') if replacement else text('')})"
    )


def _repeat(call: Operand) -> str:
    count = call.children[1].constant
    if not isinstance(count, int) or count < 0:
        raise NotTranslated("repeat")
    return f"repeat({call.children[0].cast('string')}, {count})"


def _concat(call: Operand) -> str:
    kind = call.known_type
    if kind == "string" and call.children:
        return " || ".join(child.cast("string") for child in call.children)
    if element(kind) is None or len(call.children) != 2:  # noqa: PLR2004 - two arrays
        raise NotTranslated(f"concat of {kind}")
    first, second = (child.cast(kind) for child in call.children)
    return f"CASE WHEN {first} IS NULL OR {second} IS NULL THEN NULL ELSE list_concat({first}, {second}) END"


def _concat_ws(call: Operand) -> str:
    if any(element(child.type) is not None for child in call.children):
        raise NotTranslated("concat_ws of arrays")
    texts = [child.cast("string") for child in call.children]
    return f"concat_ws({', '.join(texts if len(texts) > 1 else [*texts, text('')])})"  # DuckDB wants a text to join


def _matches(call: Operand) -> str:
    pattern = regex(str(call.children[1].constant))
    return f"regexp_matches({call.children[0].cast('string')}, {text(pattern)})"


def _extracted(call: Operand) -> str:
    pattern, group = str(call.children[1].constant), call.option(2, 1)
    if not isinstance(group, int) or "$" in pattern or not 0 <= group <= re.compile(pattern).groups:
        raise NotTranslated(f"the pattern {pattern!r}")
    return f"regexp_extract({call.children[0].cast('string')}, {text(regex(pattern))}, {group})"


def _substituted(call: Operand) -> str:
    value, *constants = call.children
    pattern, replacement = (str(child.constant) for child in constants)
    if "$" in pattern or "\\" in replacement or not pattern or re.compile(pattern).match(""):
        raise NotTranslated(f"the pattern {pattern!r}")
    translated = re.sub(r"\$(\d)", r"\\\1", replacement)
    if "$" in translated:
        raise NotTranslated(f"the replacement {replacement!r}")
    return f"regexp_replace({value.cast('string')}, {text(regex(pattern))}, {text(translated)}, 'g')"


def _split(call: Operand) -> str:
    value, pattern = call.children
    return f"string_split_regex({value.cast('string')}, {text(separator(str(pattern.constant)))})"


def _split_part(call: Operand) -> str:
    value, delimiter, part = call.children
    number = part.constant
    if not isinstance(number, int) or number < 1 or not delimiter.constant:
        raise NotTranslated("split_part")
    return f"split_part({value.cast('string')}, {delimiter.sql()}, {number})"


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("upper", "ucase"), _cased("upper")),
    **dict.fromkeys(("lower", "lcase"), _cased("lower")),
    **dict.fromkeys(("length", "len", "char_length", "character_length"), _length),
    "octet_length": template("CAST(strlen({0}) AS INTEGER)", "string"),
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
    "instr": template("CAST(instr({0}, {1}) AS INTEGER)", "string", "string"),
    **dict.fromkeys(("locate", "position"), template("CAST(instr({1}, {0}) AS INTEGER)", "string", "string")),
    "startswith": template("starts_with({0}, {1})", "string", "string"),
    "endswith": template("suffix({0}, {1})", "string", "string"),
    "contains": template("contains({0}, {1})", "string", "string"),
    **dict.fromkeys(("rlike", "regexp", "regexp_like"), _matches),
    "regexp_extract": _extracted,
    "regexp_replace": _substituted,
    "split": _split,
    "split_part": _split_part,
}
"""Function or operator -> its translation."""
