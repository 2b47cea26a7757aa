"""How many arguments each function of Spark 4.2 takes; measured by calling each function of Spark with zero to nine nulls."""

from __future__ import annotations

from collections.abc import Mapping

_MOST = 1 << 31
_TABLE: Mapping[str, str] = {
    "0": """curdate current_catalog current_database current_date current_path current_schema current_timestamp
        current_timezone current_user e input_file_block_length input_file_block_start input_file_name localtimestamp
        monotonically_increasing_id now pi session_user spark_partition_id user version""",
    "0-1": "current_time rand randn random uuid",
    "0-2": "make_ym_interval unix_timestamp",
    "0-4": """make_dt_interval tuple_union_double tuple_union_integer tuple_union_theta_double
        tuple_union_theta_integer""",
    "0-7": "make_interval",
    "1": """abs acos acosh array_compact array_distinct array_max array_min array_size ascii asin asinh atan atanh
        base64 bigint bin binary bit_count bit_length bitmap_bit_position bitmap_bucket_number bitmap_count boolean
        cardinality cbrt char char_length character_length chr collation cos cosh cot crc32 csc date
        date_from_unix_date day dayname dayofmonth dayofweek dayofyear decimal degrees double exp expm1 factorial
        flatten float hex hll_sketch_estimate hour initcap int is_valid_utf8 is_valid_variant is_variant_null isnan
        isnotnull isnull json_array_length json_object_keys kll_sketch_get_n_bigint kll_sketch_get_n_double
        kll_sketch_get_n_float kll_sketch_to_string_bigint kll_sketch_to_string_double kll_sketch_to_string_float
        last_day lcase len length ln log10 log1p log2 lower luhn_check make_valid_utf8 map_entries map_from_entries
        map_keys map_values md5 minute month monthname negative not nullifzero octet_length parse_json positive
        quarter quote radians raise_error reverse rint schema_of_variant sec second sha sha1 sign signum sin sinh size
        smallint soundex space sqrt st_geogfromwkb st_srid string tan tanh theta_sketch_estimate timestamp
        timestamp_micros timestamp_millis timestamp_seconds tinyint to_variant_object try_parse_json try_url_decode
        try_validate_utf8 tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_theta_double
        tuple_sketch_theta_integer typeof ucase unbase64 unhex unix_date unix_micros unix_millis unix_seconds upper
        url_decode url_encode validate_utf8 weekday weekofyear year zeroifnull ~""",
    "1-": "coalesce concat_ws format_string hash printf xxhash64",
    "1-2": """+ - approx_top_k_estimate array_sort assert_true bround btrim ceil ceiling floor from_unixtime log ltrim
        randstr round rtrim schema_of_csv schema_of_json schema_of_xml shuffle sort_array st_asbinary st_geomfromwkb
        to_binary to_csv to_date to_json to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_xml trim
        try_to_binary try_to_date try_to_timestamp tuple_sketch_summary_double tuple_sketch_summary_integer
        vector_norm vector_normalize""",
    "1 2 3 6 7": "make_timestamp try_make_timestamp",
    "1-3": "sentences str_to_map",
    "1-5": "mask",
    "1-7": "try_make_interval",
    "2": """% & * / : < << <= <=> <> = > >= >> >>> [] ^ add_months and array_append array_contains array_except
        array_intersect array_position array_prepend array_remove array_repeat array_union arrays_overlap atan2
        bit_get collate contains date_add date_diff date_format date_part date_sub date_trunc dateadd datediff
        datepart div element_at encode endswith equal_null exists extract filter find_in_set forall format_number
        from_utc_timestamp get get_json_object getbit hypot ifnull instr kll_sketch_get_quantile_bigint
        kll_sketch_get_quantile_double kll_sketch_get_quantile_float kll_sketch_get_rank_bigint
        kll_sketch_get_rank_double kll_sketch_get_rank_float kll_sketch_merge_bigint kll_sketch_merge_double
        kll_sketch_merge_float left map_contains_key map_filter map_from_arrays mod nanvl next_day nullif nvl or pmod
        pow power regexp regexp_count regexp_like regexp_substr repeat right rlike sha2 shiftleft shiftright
        shiftrightunsigned st_setsrid startswith theta_difference theta_intersection to_char to_number
        to_utc_timestamp to_varchar transform transform_keys transform_values trunc try_add try_divide try_element_at
        try_mod try_multiply try_subtract try_to_number tuple_difference_double tuple_difference_integer
        tuple_difference_theta_double tuple_difference_theta_integer vector_cosine_similarity vector_inner_product
        vector_l2_distance xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short
        xpath_string | ||""",
    "2-": "decode elt greatest least",
    "2-3": """array_join convert_timezone from_csv from_json from_xml hll_union ilike levenshtein like locate lpad
        months_between parse_url position regexp_extract regexp_extract_all regexp_instr replace rpad sequence split
        substr substring theta_union time_bucket try_parse_url try_variant_get tuple_intersection_double
        tuple_intersection_integer tuple_intersection_theta_double tuple_intersection_theta_integer uniform
        variant_get""",
    "2 3 6 7": "make_timestamp_ltz try_make_timestamp_ltz",
    "2-5": "aes_decrypt try_aes_decrypt",
    "2 6": "make_timestamp_ntz try_make_timestamp_ntz",
    "2-6": "aes_encrypt",
    "3": """array_insert between conv if make_date map_zip_with nvl2 slice split_part substring_index timestampadd
        timestampdiff translate zip_with""",
    "3-4": "aggregate overlay reduce regexp_replace",
    "4": "width_bucket",
    "even": "map named_struct",
}
"""Numbers of arguments -> functions: ``1``; ``1-2`` from one to two; ``1-`` one or more; ``2 6`` two or six."""


def _counts(text: str) -> tuple[range, ...]:
    if text == "even":
        return (range(0, _MOST, 2),)
    parts = [part.partition("-") for part in text.split()]
    return tuple(range(int(low), (int(high or _MOST) if dash else int(low)) + 1) for low, dash, high in parts)


COUNTS: Mapping[str, tuple[range, ...]] = {
    name: _counts(text) for text, names in _TABLE.items() for name in names.split()
}
"""Function or operator -> how many arguments it takes; a name that is missing here takes any number."""


def takes(name: str, count: int) -> bool:
    """(function, number of arguments) -> True if the function takes that many."""
    return name not in COUNTS or any(count in counts for counts in COUNTS[name])


def described(name: str) -> str:
    """How many arguments a function takes, for errors: ``2 or 3 arguments``."""
    if any(counts.step > 1 for counts in COUNTS[name]):
        return "an even number of arguments"
    spans = COUNTS[name]
    if spans[-1].stop > _MOST:
        return f"{spans[-1].start} or more arguments"
    numbers = [str(number) for counts in spans for number in counts]
    listed = f"{', '.join(numbers[:-1])} or {numbers[-1]}" if len(numbers) > 1 else numbers[0]
    return f"{listed} argument{'s' * (listed != '1')}"
