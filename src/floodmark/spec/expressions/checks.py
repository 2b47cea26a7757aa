"""What Spark's analyser refuses: a wrong number of arguments, values that do not compare, casts that fail for every value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from floodmark.spec.expressions.tree import Literal
from floodmark.spec.expressions.typed import Mismatch, Typed, kinds
from floodmark.spec.expressions.widening import SCALARS, common, common_of, element, is_number

_PARTS = """year y years yr yrs yearofweek quarter qtr month mon mons months week w weeks day d days
        dayofweek dow dayofweek_iso dow_iso doy hour h hours hr hrs minute m min mins minutes second
        s sec seconds secs"""
_OF_DATES = "year month day dayofmonth dayofyear dayofweek weekday weekofyear quarter last_day"
_ARGUMENTS: Mapping[int, str] = {
    1: f"""{_OF_DATES} upper ucase lower lcase length len char_length character_length reverse isnan isnull
        isnotnull not abs negative positive sqrt exp ln log2 log10 log1p expm1 sin cos tan asin acos
        atan hour minute second unix_date unix_millis unix_seconds unix_micros md5 sha1 array_max
        array_min array_distinct array_compact size cardinality array_size initcap ascii sign signum
        flatten hex bin""",
    2: """trunc date_trunc mod pmod date_sub add_months next_day instr startswith endswith contains
        array_contains repeat left right pow power nullif ifnull nvl date_format from_utc_timestamp
        to_utc_timestamp""",
    3: "if nvl2 timestampdiff timestampadd split_part",
}
COUNTS: Mapping[str, int] = {name: count for count, names in _ARGUMENTS.items() for name in names.split()}
"""Function -> how many arguments it takes, of the functions in wide use that always take as many."""


def _compared(name: str, children: Sequence[Typed]) -> None:
    if common_of(kinds(children)) is None:
        raise Mismatch(f"values that compare, around {name}", " and ".join(dict.fromkeys(kinds(children))))


def _conditions(name: str, children: Sequence[Typed]) -> None:
    for child in children:
        if child.type not in {"boolean", "void", "string", ""}:
            raise Mismatch(f"conditions around {name.upper()}", child.type)


def _if_condition(name: str, children: Sequence[Typed]) -> None:
    if children[0].type not in {"boolean", "void", "string", ""}:
        raise Mismatch(f"a condition in {name}", children[0].type)


def _membership(name: str, children: Sequence[Typed]) -> None:
    array, value = children[0], children[1]
    of = element(array.type)
    if (array.type and of is None) or value.type == "void":
        raise Mismatch(f"an array and a value in {name}", f"{array.type} and {value.type}")
    if of is not None and common(of, value.type) is None:
        raise Mismatch(f"a value of type {of} in {name}", value.type)


def _part(name: str, children: Sequence[Typed]) -> None:
    node = children[0].node if children else None
    if isinstance(node, Literal) and str(node.value).lower() not in _PARTS.split():
        raise Mismatch(f"a part of a date in {name}, such as YEAR or HOUR", repr(node.value))


def _date(name: str, children: Sequence[Typed]) -> None:
    if children and children[0].type not in {"date", "timestamp", "timestamp_ntz", "string", "void", ""}:
        raise Mismatch(f"a date or a timestamp in {name}", children[0].type)


CHECKS: Mapping[str, Callable[[str, Sequence[Typed]], None]] = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "<=>", "in", "between", "nullif", "equal_null"), _compared),
    **dict.fromkeys(("and", "or", "not"), _conditions),
    "if": _if_condition,
    **dict.fromkeys(("array_contains", "array_position", "array_remove"), _membership),
    **dict.fromkeys(("extract", "date_part", "datepart"), _part),
    **dict.fromkeys((*_OF_DATES.split(), "add_months"), _date),
}
"""Function or operator -> the check of its arguments."""


def check_cast(source: str, target: str) -> None:
    """Casts ANSI mode refuses whatever the value."""
    complex_ = ("array", "map", "struct")
    refused = (
        (source == "boolean" and target in {"date", "timestamp"})
        or (source == "date" and (is_number(target) or target in {"boolean", "binary"}))
        or (source == "timestamp" and target in {"boolean", "binary"})
        or (is_number(source) and target == "date")
        or (is_number(source) and target == "binary")
        or (source == "binary" and (is_number(target) or target in {"boolean", "date", "timestamp"}))
        or (source.startswith(complex_) and target in SCALARS - {"string"})
        or (source in SCALARS and source != "string" and target.startswith(complex_))
        or (source == "string" and target.startswith(complex_))
    )
    if refused:
        raise Mismatch(f"a value that casts to {target}", source)
