"""Every function Spark 4.2 lists: whether its answer depends on the row alone, and its result type if the type is fixed.

A test compares these names with Spark's own list. A function without a type here and without a rule in ``rules.RULES`` needs a CAST.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from floodmark.spec.expressions.rules import RULES

Class = Literal["pure", "impure", "aggregate", "generator", "window", "table", "foreign", "time"]

RESULTS: Mapping[str, str] = {
    "boolean": """! < <= <=> <> = > >= and not or between in like ilike rlike regexp regexp_like isnan isnotnull isnull
        array_contains arrays_overlap contains endswith startswith exists forall equal_null is_valid_utf8 luhn_check
        map_contains_key is_variant_null is_valid_variant xpath_boolean""",
    "tinyint": "bit_get getbit",
    "smallint": "xpath_short",
    "int": """array_size ascii bit_count bit_length cardinality char_length character_length date_diff datediff day dayofmonth
        dayofweek dayofyear find_in_set hash hour instr json_array_length len length levenshtein locate minute month
        octet_length position quarter regexp_count regexp_instr second size st_srid unix_date weekday weekofyear year xpath_int""",
    "bigint": """array_position bitmap_bit_position bitmap_bucket_number bitmap_count crc32 div factorial hll_sketch_estimate
        kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float timestampdiff to_unix_timestamp unix_micros
        unix_millis unix_seconds width_bucket xpath_long xxhash64""",
    "float": "vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm xpath_float",
    "double": """acos acosh asin asinh atan atan2 atanh cbrt cos cosh cot csc degrees e exp expm1 hypot ln log log10 log1p log2
        months_between pi pow power radians rint sec sign signum sin sinh sqrt tan tanh theta_sketch_estimate
        tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_theta_double tuple_sketch_theta_integer
        xpath_double xpath_number""",
    "string": """array_join base64 bin btrim char chr collate collation concat_ws conv date_format dayname decode elt format_number
        format_string from_unixtime get_json_object hex initcap kll_sketch_to_string_bigint kll_sketch_to_string_double
        kll_sketch_to_string_float lcase lower make_valid_utf8 mask md5 monthname parse_url printf quote regexp_extract
        regexp_replace regexp_substr repeat replace schema_of_csv schema_of_json schema_of_variant schema_of_xml sha sha1
        sha2 soundex space split_part substring_index to_char to_csv to_json to_varchar to_xml translate try_parse_url
        try_url_decode try_validate_utf8 typeof ucase upper url_decode url_encode validate_utf8 xpath_string""",
    "binary": """aes_decrypt aes_encrypt encode hll_union kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float
        st_asbinary theta_difference theta_intersection theta_union to_binary try_aes_decrypt try_to_binary
        tuple_difference_double tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer
        tuple_intersection_double tuple_intersection_integer tuple_intersection_theta_double tuple_intersection_theta_integer
        tuple_union_double tuple_union_integer tuple_union_theta_double tuple_union_theta_integer unbase64 unhex""",
    "date": "add_months date_add date_from_unix_date date_sub last_day make_date next_day to_date trunc try_to_date",
    "timestamp": """date_trunc from_utc_timestamp make_timestamp_ltz timestamp_micros timestamp_millis timestamp_seconds
        timestampadd to_timestamp to_timestamp_ltz to_utc_timestamp try_make_timestamp_ltz try_to_timestamp""",
    "timestamp_ntz": "make_timestamp_ntz to_timestamp_ntz try_make_timestamp_ntz",
    "array<string>": "json_object_keys regexp_extract_all split xpath",
    "array<float>": "vector_normalize",
    "array<array<string>>": "sentences",
    "map<string,string>": "str_to_map",
    "interval day to second": "make_dt_interval",
    "interval year to month": "make_ym_interval",
    "interval": "make_interval try_make_interval",
    "variant": ": parse_json try_parse_json to_variant_object",
    "void": "assert_true raise_error",
}
"""Result type -> the pure functions and operators that always have it."""

UNTYPED = [
    "approx_top_k_estimate",
    "arrays_zip",
    "convert_timezone",
    "from_csv",
    "from_json",
    "from_xml",
    "kll_sketch_get_quantile_bigint",
    "kll_sketch_get_quantile_double",
    "kll_sketch_get_quantile_float",
    "kll_sketch_get_rank_bigint",
    "kll_sketch_get_rank_double",
    "kll_sketch_get_rank_float",
    "make_timestamp",
    "map_concat",
    "map_entries",
    "map_from_arrays",
    "map_from_entries",
    "map_zip_with",
    "st_geogfromwkb",
    "st_geomfromwkb",
    "st_setsrid",
    "time_bucket",
    "to_number",
    "transform_keys",
    "transform_values",
    "try_make_timestamp",
    "try_to_number",
    "try_variant_get",
    "tuple_sketch_summary_double",
    "tuple_sketch_summary_integer",
    "variant_get",
]
"""Pure functions whose type is not inferred."""

IMPURE: Mapping[str, str] = {
    "double": "rand randn random",
    "string": """current_catalog current_database current_path current_schema current_timezone current_user input_file_name
        randstr session_user user uuid version""",
    "timestamp": "current_timestamp now",
    "timestamp_ntz": "localtimestamp",
    "date": "curdate current_date",
    "bigint": "input_file_block_length input_file_block_start monotonically_increasing_id",
    "int": "spark_partition_id",
    "": "current_time shuffle uniform unix_timestamp",
}
"""Functions of the clock, of chance, of the session or of where a row lies: result type -> names."""

REFUSED: Mapping[Class, str] = {
    "aggregate": """any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
        approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and
        bool_or collect_list collect_set corr count count_if count_min_sketch covar_pop covar_samp every first first_value
        grouping grouping_id histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double
        kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis last last_value listagg
        max max_by mean measure median min min_by mode percentile percentile_approx percentile_cont percentile_disc regr_avgx
        regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness some
        std stddev stddev_pop stddev_samp string_agg sum theta_intersection_agg theta_sketch_agg theta_union_agg try_avg
        try_sum tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double
        tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance vector_avg
        vector_sum""",
    "generator": "explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack variant_explode "
    "variant_explode_outer",
    "window": "cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number session_window window window_time",
    "table": "collations python_worker_logs range sql_keywords table_changes table_changes_by_path",
    "foreign": "from_avro from_protobuf java_method reflect schema_of_avro to_avro to_protobuf try_reflect",
    "time": """make_time time time_diff time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis
        time_to_seconds time_trunc to_time try_to_time""",
}
"""Functions no expression over one row may call."""

WHY: Mapping[str, tuple[str, str]] = {
    "aggregate": (
        "an expression over one row",
        "Aggregates belong into .window(...).aggregate(name=count()); a subquery into an operator of its own.",
    ),
    "generator": (
        "an expression with one value per row",
        "Use flat_map(function, schema=...): a row becomes any number.",
    ),
    "window": ("an expression over one row", "Use .key_by(...).window(...), or flat_map and process for a function."),
    "table": ("an expression with one value per row", "Declare a source, and join it."),
    "foreign": ("a function of Spark SQL itself", "Write it in Python: flat_map(function, schema=...)."),
    "time": ("a function of types a column may have", "Keep a time of day as seconds (bigint) or as text."),
}
"""Class -> what is expected instead, and the fix."""

BARE = frozenset(
    [
        "current_date",
        "current_time",
        "current_timestamp",
        "current_user",
        "session_user",
        "user",
    ]
)
"""Functions that SQL calls without parentheses if no column has the name."""


def _by_name(table: Mapping[str, str]) -> dict[str, str]:
    return {name: kind for kind, names in table.items() for name in names.split()}


_FIXED, _IMPURE, _REFUSED = _by_name(RESULTS), _by_name(IMPURE), _by_name(REFUSED)  # type: ignore[arg-type]  # keys are str
_FORMS = ("!=", "==", "case", "cast")
"""Names in Spark's list of functions that the parser reads as other forms."""
_PURE = frozenset({*_FIXED, *RULES, *UNTYPED, *_FORMS})


def classified(name: str) -> Class | None:
    """The class of a function; None for a name Spark 4.2 does not list."""
    if name in _IMPURE:
        return "impure"
    if name in _REFUSED:
        return _REFUSED[name]  # type: ignore[return-value]  # the keys of REFUSED
    return "pure" if name in _PURE else None


def fixed_type(name: str) -> str:
    """The type a function always has; empty if the type depends on the arguments or is unknown."""
    return _FIXED.get(name) or _IMPURE.get(name, "")


def names() -> frozenset[str]:
    """All names that may be called."""
    return frozenset({*_PURE, *_IMPURE})
