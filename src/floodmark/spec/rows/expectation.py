"""Expectations: conditions on the rows of a table, as data. Great Expectations evaluates them; declaring them needs no import of it."""

from __future__ import annotations

import json
from typing import Any, Literal, get_args

from attrs import frozen

from floodmark.core.errors import DefinitionError
from floodmark.core.fingerprint import digest
from floodmark.spec.values.schema import Schema

_PREFIX = "expect_"
OnFail = Literal["stop", "quarantine", "warn"]
GALLERY = frozenset(
    [
        "column_distinct_values_to_be_in_set",
        "column_distinct_values_to_contain_set",
        "column_distinct_values_to_equal_set",
        "column_kl_divergence_to_be_less_than",
        "column_max_to_be_between",
        "column_mean_to_be_between",
        "column_median_to_be_between",
        "column_min_to_be_between",
        "column_most_common_value_to_be_in_set",
        "column_pair_values_a_to_be_greater_than_b",
        "column_pair_values_to_be_equal",
        "column_pair_values_to_be_in_set",
        "column_proportion_of_non_null_values_to_be_between",
        "column_proportion_of_unique_values_to_be_between",
        "column_quantile_values_to_be_between",
        "column_stdev_to_be_between",
        "column_sum_to_be_between",
        "column_to_exist",
        "column_type_to_be",
        "column_unique_value_count_to_be_between",
        "column_value_lengths_to_be_between",
        "column_value_lengths_to_equal",
        "column_value_z_scores_to_be_less_than",
        "column_values_to_be_between",
        "column_values_to_be_dateutil_parseable",
        "column_values_to_be_decreasing",
        "column_values_to_be_in_set",
        "column_values_to_be_in_type_list",
        "column_values_to_be_increasing",
        "column_values_to_be_json_parseable",
        "column_values_to_be_null",
        "column_values_to_be_of_type",
        "column_values_to_be_unique",
        "column_values_to_match_json_schema",
        "column_values_to_match_like_pattern",
        "column_values_to_match_like_pattern_list",
        "column_values_to_match_regex",
        "column_values_to_match_regex_list",
        "column_values_to_match_strftime_format",
        "column_values_to_not_be_in_set",
        "column_values_to_not_be_null",
        "column_values_to_not_be_outliers",
        "column_values_to_not_match_like_pattern",
        "column_values_to_not_match_like_pattern_list",
        "column_values_to_not_match_regex",
        "column_values_to_not_match_regex_list",
        "compound_columns_to_be_unique",
        "multicolumn_sum_to_equal",
        "multicolumn_values_to_be_equal",
        "multicolumn_values_to_be_unique",
        "query_results_to_match_comparison",
        "select_column_values_to_be_unique_within_record",
        "table_column_count_to_be_between",
        "table_column_count_to_equal",
        "table_columns_to_match_ordered_list",
        "table_columns_to_match_set",
        "table_row_count_to_be_between",
        "table_row_count_to_equal",
        "table_row_count_to_equal_other_table",
    ]
)
"""The kinds that Great Expectations 1 has."""


@frozen(init=False)
class Expectation:
    """One expectation of Great Expectations' gallery, by its name and arguments.

    Example:
        >>> Expectation("column_values_to_be_between", column="departures", min_value=1, max_value=60).name
        'column_values_to_be_between_departures'

    Args:
        kind: as in the gallery, with or without ``expect_``: ``"column_mean_to_be_between"``, ``"table_row_count_to_be_between"``.
        name: of the check; by default the kind and its columns.
        blocking: a failure keeps downstream assets from running.
        strict: streams and bounded runs read rows of an asset partition only once it is complete and has met this; needs ``blocking``.
        on_fail: judged by the stream too, before each micro-batch is committed, and by bounded runs before they commit: ``"stop"`` ends the run
            with an error that names the rows, ``"quarantine"`` moves the rows to ``<operator>__quarantine``, ``"warn"`` counts them. None: by
            checks alone.
        arguments: of the expectation, JSON values: ``column``, ``min_value``, ``mostly`` ...

    Source: https://greatexpectations.io/expectations
    """

    kind: str
    name: str
    blocking: bool
    on_fail: OnFail | None
    arguments: str
    strict: bool = False

    def __init__(
        self,
        kind: str,
        *,
        name: str | None = None,
        blocking: bool = False,
        strict: bool = False,
        on_fail: OnFail | None = None,
        **arguments: Any,
    ) -> None:
        kind = kind.removeprefix(_PREFIX)
        if on_fail is not None and on_fail not in get_args(OnFail):
            fix = 'on_fail is "stop", "quarantine" or "warn"; leave it out for checks alone.'
            where = f"expectation '{kind}'"
            raise DefinitionError(where, "a way to treat rows", repr(on_fail), fix, code="DEFINITION-290")
        if strict and not blocking:
            fix = "Write blocking=True beside it, or leave strict out."
            where, got = f"expectation '{kind}'", "strict=True without it"
            raise DefinitionError(where, "blocking=True", got, fix, code="DEFINITION-303")
        try:
            text = json.dumps(arguments, sort_keys=True)
        except TypeError as error:
            fix = "Write numbers, texts, lists and true or false; a date as text."
            where = f"expectation '{kind}'"
            expected = "arguments that are JSON"
            raise DefinitionError(where, expected, repr(arguments), fix, code="DEFINITION-093") from error
        self.__attrs_init__(kind, name or "_".join([kind, *_columns(arguments)]), blocking, on_fail, text, strict)

    @property
    def values(self) -> dict[str, Any]:
        """The arguments."""
        return dict(json.loads(self.arguments))

    def named(self, name: str) -> Expectation:
        """The same expectation with another name."""
        settings: dict[str, Any] = {"blocking": self.blocking, "strict": self.strict, "on_fail": self.on_fail}
        return Expectation(self.kind, name=name, **settings, **self.values)

    def describe(self) -> str:
        """``column_values_to_be_between(column='mean', max_value=40)``."""
        return f"{self.kind}({', '.join(f'{name}={value!r}' for name, value in self.values.items())})"

    def check(self, schema: Schema, where: str) -> None:
        """Refuse an expectation about a column that the schema lacks: DEFINITION-094."""
        for column in _columns(self.values):
            if column not in schema:
                got, fix = f"'{column}' in {self.kind}", schema.nearest(column)
                raise DefinitionError(where, "expectations of its columns", got, fix, code="DEFINITION-094")


def distinct(expectations: tuple[Expectation, ...]) -> tuple[Expectation, ...]:
    """The same expectations with distinct names: a repeated name gets a digest of the arguments as its suffix."""
    seen: dict[str, Expectation] = {}
    for expectation in expectations:
        if expectation.name in seen:
            other = f"{expectation.name}_{digest({'arguments': expectation.arguments})[:6]}"
            expectation = expectation.named(other)  # noqa: PLW2901 - the same, renamed
        seen[expectation.name] = expectation
    return tuple(seen.values())


def _columns(arguments: dict[str, Any]) -> list[str]:
    """The columns among the arguments of an expectation."""
    singles = [arguments[key] for key in ("column", "column_A", "column_B") if key in arguments]
    lists = [name for key in ("column_list", "column_set") for name in arguments.get(key) or ()]
    return [str(name) for name in [*singles, *lists]]
