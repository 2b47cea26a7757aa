"""Expressions that no rule makes: of three arguments and more, with words, patterns, formats, lambdas, structs, maps, intervals."""

from __future__ import annotations

from itertools import product

OPERATORS = ("=", "<=>", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "DIV", "||", "&", "|", "^")
_SCALARS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal(12,3)", "decimal(38,6)", "boolean", "string", "binary",
            "date", "timestamp")  # fmt: skip
_ORDERED = ("int", "bigint", "double", "decimal(12,3)", "string", "date", "timestamp")
_ARRAYS = ("array<bigint>", "array<string>", "array<double>", "array<int>")

_OF_ONE_TYPE = [
    form.replace("{T}", f"{{{kind}}}")
    for kind in _SCALARS
    for form in (
        "coalesce({T}, {T}, {T})", "{T} IN ({T}, {T})", "{T} NOT IN ({T}, {T}, NULL)", "{T} BETWEEN {T} AND {T}", "if({boolean}, {T}, {T})", "if({boolean}, {T}, NULL)", "if({boolean}, NULL, {T})",
        "CASE WHEN {boolean} THEN {T} ELSE {T} END", "CASE WHEN {boolean} THEN {T} END", "CASE {T} WHEN {T} THEN 1 ELSE 2 END",
        "nvl2({T}, {T}, {T})", "greatest({T}, {T}, {T})", "least({T}, {T}, {T})", "greatest({T}, {T})", "least({T}, {T})",
        "array({T}, {T})", "xxhash64({T}, {T})", "hash({T}, {T})", "named_struct('a', {T}, 'b', {T})", "named_struct('a', {T}).a",
        "struct({T}, {T})", "map('k', {T})", "map('k', {T})['k']", "map('k', {T})['z']", "array({T}, {T})[0]",
        "element_at(array({T}, {T}), 2)", "coalesce({T}, NULL)", "coalesce(NULL, {T})", "nullif({T}, NULL)", "{T} IS NULL",
        "{T} IS NOT NULL", "{T} = NULL", "{T} <=> NULL", "{T} IN (NULL)", "typeof({T})", "array_repeat({T}, 2)",
    )
]  # fmt: skip
_OF_TWO_TYPES = [
    form.replace("{T}", f"{{{one}}}").replace("{U}", f"{{{two}}}")
    for one, two in product(_SCALARS, _SCALARS)
    if one != two
    for form in (
        "coalesce({T}, {U})", "if({boolean}, {T}, {U})", "{T} IN ({U}, {T})", "greatest({T}, {U})", "least({T}, {U})",
        "CASE WHEN {boolean} THEN {T} ELSE {U} END", "array({T}, {U})", "named_struct('a', {T}, 'b', {U})", "array({U}, {T}, {T})", "{T} BETWEEN {U} AND {U}",
    )
]  # fmt: skip
_DIGITS = ("{bigint}", "{int}", "{decimal(12,3)}", "100.0", "0.01", "7", "CAST({decimal(12,3)} AS decimal(10,1))", "CAST({decimal(12,3)} AS decimal(18,2))",
           "CAST({decimal(12,3)} AS decimal(22,3))", "CAST({decimal(12,3)} AS decimal(28,9))", "CAST({smallint} AS decimal(5,0))", "{decimal(38,0)}")  # fmt: skip
_OF_DECIMALS = [
    f"{one} {operator} {other}"
    for operator in ("+", "-", "*", "/", "%", "DIV")
    for one, other in product(_DIGITS, _DIGITS)
    if "decimal" in one + other or "." in one + other
]
"""Decimals of more and of fewer digits beside each other."""
_OF_ARRAYS = [
    form.replace("{A}", f"{{{kind}}}").replace("{E}", f"{{{kind[6:-1]}}}")
    for kind in _ARRAYS
    for form in (
        "slice({A}, {int}, {int})", "slice({A}, 1, 2)", "slice({A}, -1, 1)", "slice({A}, 2, 5)", "slice({A}, -3, 2)", "{A}[{int}]", "{A}[0]",
        "{A}[-1]", "{A}[1]", "element_at({A}, CAST({smallint} AS int))", "element_at({A}, 1)", "element_at({A}, -1)", "get({A}, {int})", "get({A}, 0)",
        "try_element_at({A}, CAST({smallint} AS int))", "try_element_at({A}, 1)", "array_insert({A}, {int}, {E})", "array_insert({A}, 1, {E})",
        "array_insert({A}, -1, {E})", "concat({A}, {A})", "concat({A}, {A}, {A})", "exists({A}, x -> x > {E})", "forall({A}, x -> x > {E})",
        "exists({A}, x -> x IS NULL)", "filter({A}, x -> x = {E})", "filter({A}, x -> x IS NOT NULL)", "filter({A}, (x, i) -> i > 0)",
        "transform({A}, x -> x = {E})", "transform({A}, x -> CAST(x AS string))", "transform({A}, (x, i) -> i)", "transform({A}, (x, i) -> x)",
        "zip_with({A}, {A}, (x, y) -> x = y)", "zip_with({A}, {A}, (x, y) -> coalesce(x, y))", "array_sort({A}, (x, y) -> CASE WHEN x < y THEN -1 WHEN x > y THEN 1 ELSE 0 END)", "arrays_zip({A}, {A})", "sort_array({A}, true)", "sort_array({A}, false)", "map_from_arrays({A}, {A})",
        "aggregate({A}, {E}, (acc, x) -> coalesce(x, acc))", "reduce({A}, {E}, (acc, x) -> coalesce(x, acc))", "size({A})", "cardinality({A})",
        "array_join(CAST({A} AS array<string>), ',')", "array_join(CAST({A} AS array<string>), ',', '?')",
        "array_join(CAST({A} AS array<string>), {string}, {string})", "flatten(array({A}, {A}))", "array({A}, {A})",
        "map_keys(map_from_arrays({A}, {A}))", "sequence(1, size({A}))", "array({E}, {E}, {E}, {E})", "array({E})", "CASE WHEN {boolean} THEN {A} ELSE {A} END",
        "CASE WHEN {boolean} THEN {A} WHEN {boolean} THEN {A} END", "named_struct('a', {A}, 'b', {E})",
    )
]  # fmt: skip
_TEXTS = """substring({string}, {int}, {int})|substring({string}, {int})|substr({string}, {int}, {int})|substring({binary}, {int}, {int})
left({string}, {int})|right({string}, {int})|left({binary}, {int})|lpad({string}, 5, {string})|rpad({string}, 5, {string})|lpad({string}, 0, 'x')
lpad({string}, 2, 'ab')|rpad({string}, 2, 'ab')|lpad({string}, 7)|rpad({string}, 7)|lpad({string}, -1, 'x')|lpad({string}, 5, '')|rpad({string}, 5, '')
lpad({binary}, 5, {binary})|rpad({binary}, 5, {binary})|repeat({string}, 3)|repeat({string}, 0)|repeat({string}, -1)|space(3)|space(0)
replace({string}, {string}, {string})|replace({string}, {string})|replace({string}, 'b', 'X')|replace({string}, '', 'X')|replace({string}, 'a', '')
translate({string}, {string}, {string})|translate({string}, 'abc', 'XY')|translate({string}, '', 'x')|overlay({string} PLACING {string} FROM {int})
overlay({string} PLACING {string} FROM 2)|overlay({string} PLACING 'XX' FROM 2 FOR 1)|overlay({string} PLACING {string} FROM {int} FOR {int})
locate({string}, {string})|locate({string}, {string}, {int})|locate('b', {string}, 2)|position({string} IN {string})|instr({string}, {string})
split_part({string}, {string}, {int})|split_part({string}, ',', 1)|split_part({string}, ',', -1)|split_part({string}, ',', 2)|split_part({string}, ',', 5)
substring_index({string}, {string}, {int})|substring_index({string}, ',', 1)|substring_index({string}, ',', -1)|substring_index({string}, ',', 2)
concat({string}, {string}, {string})|concat({string}, {bigint})|concat({string}, {double})|concat({string}, {date})|concat({string}, {timestamp})
concat({binary}, {binary})|concat({string}, {boolean})|concat({string}, {decimal(12,3)})|concat({string}, NULL)|concat_ws({string}, {string}, {string})
concat_ws(',', {string}, {string})|concat_ws('-', {string}, {bigint})|concat_ws(',', {array<string>})|concat_ws(',', {string}, {array<string>})
concat_ws(',', {bigint})|concat_ws(',', {date})|concat_ws(',')|concat_ws(',', NULL, {string})|format_string('%s', {string})|format_string('%d', {bigint})
format_string('%05d', {bigint})|format_string('%.2f', {double})|printf('%s-%d', {string}, {int})|format_string('%x', {bigint})|elt({int}, {string}, {string})
elt(1, {string}, {string})|elt(2, {string}, {bigint})|trim(BOTH {string} FROM {string})|trim(LEADING {string} FROM {string})
trim(TRAILING {string} FROM {string})|trim(BOTH 'a' FROM {string})|trim(LEADING 'ab' FROM {string})|trim(TRAILING '' FROM {string})|trim({string})
trim(LEADING FROM {string})|trim(TRAILING FROM {string})|btrim({string}, {string})|btrim({string}, 'a')|{string} LIKE {string}|{string} LIKE 'a%'
{string} LIKE '%b%'|{string} LIKE '_'|{string} LIKE 'a\\\\%b\\\\_c'|{string} LIKE '%\\n%'|{string} LIKE 'a/%b%' ESCAPE '/'|{string} LIKE ''|{string} LIKE '%'
{string} LIKE '%é_'|{string} NOT LIKE 'a%'|{string} ILIKE {string}|{string} ILIKE 'A%'|{string} ILIKE '%É%'|{string} ILIKE '%ß%'|{string} LIKE ANY ('a%', '%c')
{string} LIKE 'a\\\\b'|{string} LIKE 'a\\\\\\\\b'|{string} LIKE '.*'|{string} LIKE '(a|b)%'|{string} LIKE '%a'|{string} LIKE 'abc'
levenshtein({string}, {string}, {int})|levenshtein({string}, {string}, 2)|find_in_set({string}, {string})|find_in_set('b', 'a,b,c')
conv({string}, 10, 16)|conv({string}, 16, 10)|conv('100', 2, 10)|mask({string})|mask({string}, 'X')|ascii({string})|encode({string}, 'UTF-8')
encode({string}, 'UTF-16')|encode({string}, 'US-ASCII')|decode({binary}, 'UTF-8')|decode({string}, 'a', 1, 2)|sha2({string}, 256)|sha2({string}, 224)
sha2({string}, 384)|sha2({string}, 512)|sha2({string}, 0)|sha2({binary}, 256)|to_binary({string}, 'hex')|to_binary({string}, 'utf-8')|to_binary({string}, 'base64')
try_to_binary({string}, 'hex')|to_char({bigint}, '999')|to_char({decimal(12,3)}, '999.99')|to_number({string}, '999')|try_to_number({string}, '999')
to_number('12', '99')|parse_url({string}, 'HOST')|parse_url({string}, 'PATH')|parse_url({string}, 'QUERY')|parse_url({string}, 'QUERY', 'k')
parse_url({string}, 'PROTOCOL')|parse_url({string}, 'REF')|try_parse_url({string}, 'HOST')|try_parse_url({string}, 'QUERY', 'k')
get_json_object({string}, '$.a')|get_json_object({string}, '$.b[0]')|json_array_length('[1,2]')|to_json(named_struct('a', {bigint}, 'b', {string}))
to_json({array<bigint>})|to_json(map('a', {string}))|str_to_map({string})|str_to_map({string}, ',', ':')|str_to_map('a:1,b:2')|sentences({string})
map_concat(map('a', {bigint}), map('b', 1L))|map_entries(map('a', {bigint}))|map_keys(map('a', {bigint}))|map_values(map('a', {bigint}))
map_contains_key(map('a', 1), {string})|map_filter(map('a', {bigint}), (k, v) -> v > 0)|transform_values(map('a', {bigint}), (k, v) -> v + 1)
transform_keys(map('a', {bigint}), (k, v) -> upper(k))|map_zip_with(map('a', 1), map('a', 2), (k, x, y) -> x + y)|map({string}, {bigint})
map({string}, {bigint})[{string}]|element_at(map('a', {bigint}), {string})|try_element_at(map('a', {bigint}), {string})|map_from_entries(array(struct('a', {bigint})))
named_struct('a', {bigint}, 'b', {string}).b|struct({bigint} AS v).v|named_struct('a', named_struct('b', {bigint})).a.b|from_json({string}, 'a INT').a
width_bucket({double}, 0.0D, 10.0D, 5)|width_bucket({double}, {double}, {double}, {int})|width_bucket({double}, 10D, 0D, 3L)|width_bucket({double}, 0.0D, 10.0D, 5L)
make_date({int}, {int}, {int})|make_date(2020, {int}, 1)|make_date(2020, 2, 29)|make_timestamp({int}, 1, 1, 0, 0, 1.5)|make_timestamp(2020, 1, 31, 10, 11, 12.5)
make_timestamp(2020, 1, 31, 10, 11, 12.5, 'UTC')|try_make_timestamp(2020, {int}, 1, 0, 0, 0)|make_timestamp_ltz(2020, 1, 31, 10, 11, 12)
make_interval(0, 1)|{timestamp} + make_interval(0, 0, 0, 1)|{timestamp} + make_dt_interval(1, 2, 3, 4.5)|{date} + make_ym_interval(1, 2)
{timestamp} + make_dt_interval({int})|{date} + make_ym_interval({int})|{timestamp} - make_dt_interval(0, {int})|CAST({timestamp} AS date)
months_between({timestamp}, {timestamp}, false)|months_between({date}, {date})|months_between({timestamp}, {timestamp}, true)|{timestamp} - {timestamp}
{date} - {date}|{date} - {timestamp}|extract(DAY FROM {timestamp} - {timestamp})|extract(HOUR FROM {timestamp} - {timestamp})|{timestamp} - TIMESTAMP '2020-01-01 00:00:00'
date_add({date}, {int})|date_sub({date}, {int})|date_add({timestamp}, {int})|date_add({date}, 1)|date_sub({date}, 31)|add_months({date}, {int})|add_months({date}, 1)
add_months({date}, -13)|{date} + {int}|{date} - {int}|{date} + 1|{date} - 1|sequence(DATE '2020-01-31', DATE '2021-01-31', INTERVAL 1 MONTH)|sequence(1, 5)|sequence(5, 1)|sequence(5, 1, -2)
sequence(DATE '2020-01-01', DATE '2020-01-05')|sequence(1, 10, 3)|sequence(1L, 3L)|sequence(1, 5, {int})|time_bucket(INTERVAL 1 HOUR, {timestamp})
equal_null({bigint}, {bigint})|nanvl({double}, {double})|nanvl({double}, 0.0D)|round({double}, {int})|round({bigint}, {int})|round({decimal(12,3)}, {int})
factorial(5)|factorial(20)|factorial(21)|factorial({tinyint})|bin({int})|bin({bigint})|hex({bigint})|try_add({date}, {int})|try_add({timestamp}, INTERVAL 1 DAY)
shiftleft({bigint}, {int})|shiftright({bigint}, {int})|shiftleft({int}, {int})|shiftright({int}, {int})|shiftrightunsigned({bigint}, {int})|{bigint} << {int}|{bigint} >> {int}
{int} << 1|{bigint} >> 2|{bigint} >>> 1|shiftrightunsigned({int}, 1)|bit_get({bigint}, 0)|bit_get({bigint}, {int})|getbit({int}, 1)|hypot({double}, {double})
format_number({double}, 2)|format_number({bigint}, 0)|format_number({decimal(12,3)}, 1)|luhn_check({string})|quote({string})|aggregate({array<bigint>}, 0L, (acc, x) -> acc + x)
aggregate({array<bigint>}, 0L, (acc, x) -> acc + x, acc -> acc * 2)|transform({array<bigint>}, x -> x + 1)|transform({array<string>}, x -> upper(x))
array_position({array<bigint>}, NULL)|array_contains({array<bigint>}, 1L)|array_contains({array<bigint>}, 1)|array_contains({array<bigint>}, NULL)
from_unixtime({bigint})|from_unixtime({int})|unix_timestamp({timestamp})|to_unix_timestamp({timestamp})|unix_timestamp({date})|unix_timestamp({string})
is_valid_utf8({string})|make_valid_utf8({string})|try_validate_utf8({string})|collation({string})|luhn_check('79927398713')|randstr(3, 0)|nvl({string}, 'none')
CAST(i1 AS int) = 3|CAST(i1 AS int) <> 3|CAST(i1 AS int) < 3|3 >= CAST(i1 AS int)|CAST(i1 AS int) <=> 3|CAST(i1 AS int) IN (3, 4)|CAST(i1 AS int) BETWEEN 3 AND 4
CAST(d1 AS decimal(18,2)) = 0|CAST(d1 AS decimal(18,2)) > 0.00|CAST(d1 AS decimal(18,2)) IN (0.00, 2.35)|CAST(w1 AS decimal(10,2)) = 1.5|CASE CAST(i1 AS int) WHEN 3 THEN 1 END
n1 * 2 = 6|i1 + 1 > 3|-n1 < 5|abs(n1) = 3|CAST(w1 AS bigint) = 3|CAST(f1 AS int) = 3|CAST(p1 AS date) = DATE '2020-01-31'|CAST(i1 AS string) = '3'|nullif(CAST(i1 AS int), 3)
i1 + CAST(s2 AS int)|CAST(s1 AS int) + i2|i1 = CAST(s2 AS bigint)|f1 / CAST(s2 AS double)|CAST(s1 AS double) / f2|n1 < n2 * 2|i1 % CAST(s2 AS bigint)|d1 * CAST(s2 AS int)
i1 + i2 + i3|i1 * 2 - i2|i1 BETWEEN n1 AND 9L|NOT (i1 > 3) AND s1 LIKE 'a%'|b1 AND b2 OR b3|b1 AND NULL|NULL OR b1|b1 AND i1 > 0|i1 > 0 OR b1|NOT b1|b1 IS TRUE
b1 IS NOT FALSE|b1 IS UNKNOWN|i1 IS DISTINCT FROM i2|f1 IS NOT DISTINCT FROM f2|- i1|+ i1|- f1|- d1|- n1|~ i1|~ n1|- y1|- h1|- g1|! b1|'a' < s1|s1 = 'a'|s1 > 'B'
""".replace("\n", "|").split("|")  # fmt: skip
TEMPLATES = [
    *_OF_ONE_TYPE,
    *_OF_TWO_TYPES,
    *_OF_DECIMALS,
    *_OF_ARRAYS,
    *(text.strip() for text in _TEXTS if text.strip()),
]

PATTERNS = (
    "a", "b+", "^a", "a$", "[a-c]", "[^a-c]+", "(a)(b)?", "a|b", ".", ".*", "^.$", r"\\d+", r"\\w+", r"\\s", r"\\D", r"\\W", r"\\S+", r"\\.", "a{2}",
    "a{1,2}", "a*?", "(?:ab)+", "^$", "[0-9]+", r"\\bb", "é", "(?i)abc", "[[:alpha:]]", r"\\p{L}", "(a|b)+c", "x?", ",", r"\\|", "a.c", "[a-zA-Z]+", "$",
    "^", "😀", "[^,]+", "(.)(.)", r"\\n", r"\\t", "a(?=b)", r"(a)\\1", "a++",
)  # fmt: skip
PARTS = [
    "year",
    "years",
    "yr",
    "quarter",
    "qtr",
    "month",
    "months",
    "mon",
    "week",
    "weeks",
    "w",
    "day",
    "days",
    "dayofweek",
    "dow",
    "dayofweek_iso",
    "dow_iso",
    "doy",
    "hour",
    "hours",
    "minute",
    "minutes",
    "second",
    "seconds",
    "yearofweek",
]
UNITS = [
    "year",
    "yyyy",
    "yy",
    "quarter",
    "month",
    "mon",
    "mm",
    "week",
    "day",
    "dd",
    "hour",
    "minute",
    "second",
    "millisecond",
    "microsecond",
]
STEPS = ["year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond"]
ZONES = (
    "UTC",
    "America/Chicago",
    "America/Denver",
    "America/Los_Angeles",
    "America/Sao_Paulo",
    "America/Toronto",
    "Asia/Dubai",
    "Asia/Hong_Kong",
    "Asia/Jakarta",
    "Asia/Shanghai",
    "Asia/Singapore",
    "Asia/Tokyo",
    "Asia/Seoul",
    "Australia/Sydney",
    "Europe/Amsterdam",
    "Europe/Istanbul",
    "Europe/London",
    "Europe/Madrid",
    "Europe/Moscow",
    "Europe/Paris",
    "Europe/Rome",
    "Europe/Zurich",
    "Pacific/Auckland",
    "Africa/Cairo",
    "Africa/Johannesburg",
    "Africa/Lagos",
    "America/New_York",
    "Europe/Berlin",
    "Asia/Kolkata",
    "+05:30",
    "Africa/Monrovia",
    "Australia/Lord_Howe",
    "Z",
    "GMT+1",
    "EST",
    "PST",
    "Nowhere",
)
FORMATS = (
    "yyyy", "MM", "dd", "HH", "mm", "ss", "SSS", "SSSSSS", "EEE", "EEEE", "E", "MMM", "MMMM", "M", "d", "H", "h", "hh", "a", "D", "DDD", "yy", "y", "Q", "q",
    "u", "k", "K", "z", "XXX", "VV", "yyyy-MM-dd", "yyyy-MM-dd HH:mm:ss", "dd/MM/yyyy", "HH:mm:ss.SSS", "yyyyMMdd", "yyyy-MM-dd'T'HH:mm:ss", "MMM dd, yyyy",
    "hh:mm a", "-", "'at' HH", "S", "SS",
)  # fmt: skip
_TIMES = {"yyyy-MM-dd": "2020-01-31", "dd/MM/yyyy": "31/01/2020", "yyyy-MM-dd HH:mm:ss": "2020-01-31 10:11:12", "yyyyMMdd": "20200131",
          "yyyy-MM-dd'T'HH:mm:ss": "2020-01-31T10:11:12", "MMM dd, yyyy": "Jan 31, 2020", "HH:mm:ss": "10:11:12", "yyyy": "2020", "MM": "07",
          "yyyy-MM-dd HH:mm:ss.SSS": "2020-01-31 10:11:12.123", "dd": "07", "HH": "10", "mm": "11", "ss": "12"}  # fmt: skip
_WRITTEN_TIMES = ("2020-01-31 10:11:12", "2020-01-31T10:11:12Z", "2020-01-31 10:11:12+02:00", "2020-03-29 02:30:00 Europe/Berlin", "2020", "2020-02",
                  "2020-1-2", "9999-12-31 23:59:59.999999", "0001-01-01", "+12345-01-01", "2020-02-30", "2020-01-31 24:00:00", "2020-01-31 10:11",
                  "2020-01-31 10", " 2020-01-31 ", "2020-01-31 10:11:12.1234567", "1582-10-10", "epoch", "now", "2020-01-31 10:11:12 UTC",
                  "2020-01-31 10:11:12.", "20200131", "2020-01-31x", "10:11:12", "2020-01-31 10:11:12 America/New_York", "1883-11-18 12:03:57 America/New_York")  # fmt: skip
_NUMBERS = (" 12 ", "12.7", "+3", "1e3", "0x1F", "1_000", "\u0661", "12L", "1.5D", "", "-", ".5", "5.", "NaN", "nan", "inf", "-Infinity", "1e400", "99999999999999999999",
            "1e-400", "true", "T", "yes", "no", "off", "on", "t", "1", "0", " true ", "TRUE", "\\t7", "1,000", "128", "-129", "1e39", "0.0000005")  # fmt: skip
_STRINGS = (r"'it\'s'", "'it''s'", '"dq"', r"'a\nb'", r"'tab\t'", r"'back\\slash'", r"'\u00e9'", r"'\U0001F600'", r"'per\%cent'", r"'\_'", "'é😀'", r"'\0'", "r'a\\d'",
            "'a' 'b'", "'${x}'", "'--x'", "'/* x */'", "';'", "'%s'", r"'\''", "'\"'", "' '", "'e\u0301'", r"'\101'", "'\\Z'", r"'\r'", "'{x}'", "'$1'")  # fmt: skip

SPECIAL = [
    *(f"{name}(s1, '{pattern}')" for name in ("regexp_like", "regexp_count", "regexp_instr", "regexp_substr", "split", "regexp", "rlike")
      for pattern in PATTERNS),
    *(f"s1 RLIKE '{pattern}'" for pattern in PATTERNS),
    *(f"regexp_extract(s1, '{pattern}', {group})" for pattern in PATTERNS for group in (0, 1, 2)),
    *(f"regexp_extract(s1, '{pattern}')" for pattern in PATTERNS),
    *(f"regexp_extract_all(s1, '{pattern}', {group})" for pattern in PATTERNS for group in (0, 1)),
    *(f"regexp_replace(s1, '{pattern}', '{new}')" for pattern in PATTERNS for new in ("X", "", "[$1]", "$0", r"\\\\", "é")),
    *(f"regexp_replace(s1, '{pattern}', 'X', {start})" for pattern in PATTERNS[:6] for start in (1, 2)),
    *(f"split(s1, '{pattern}', {limit})" for pattern in PATTERNS for limit in (-1, 0, 1, 2, 3)),
    "split(s1, '')", "split(s1, s2)", "s1 RLIKE s2", "regexp_replace(s1, s2, s3)", "regexp_extract(s1, s2, 0)",
    *(f"{form}" for part in PARTS for form in (f"extract({part} FROM p1)", f"extract({part} FROM t1)", f"date_part('{part}', p1)",
                                                f"date_part('{part}', t1)", f"datepart('{part}', p1)", f"datepart('{part}', t1)")),
    *(f"date_trunc('{unit}', {of})" for unit in UNITS for of in ("p1", "t1")),
    *(f"trunc({of}, '{unit}')" for unit in UNITS for of in ("t1", "p1")),
    *(f"{name}({unit}, {of})" for unit in STEPS for name, of in (("timestampadd", "1, p1"), ("timestampadd", "n1, p1"), ("timestampadd", "-1, p1"),
      ("timestampdiff", "p1, p2"), ("timestampadd", "1, t1"), ("timestampdiff", "t1, t2"))),
    *(f"{name}(p1, '{zone}')" for zone in ZONES for name in ("from_utc_timestamp", "to_utc_timestamp")),
    *(f"convert_timezone('UTC', '{zone}', CAST(p1 AS timestamp_ntz))" for zone in ZONES),
    *(f"hour(from_utc_timestamp(p1, '{zone}'))" for zone in ZONES[:4]),
    *(f"{name}({of}, '{form}')" for form in FORMATS for name, of in (("date_format", "p1"), ("date_format", "t1"), ("from_unixtime", "i1"), ("to_date", "s1"),
      ("to_timestamp", "s1"), ("try_to_timestamp", "s1"), ("try_to_date", "s1"), ("unix_timestamp", "s1"), ("to_unix_timestamp", "s1"))),
    *(f'{name}({value!r}, "{form}")' for form, value in _TIMES.items() for name in ("to_date", "to_timestamp", "try_to_timestamp", "try_to_date", "unix_timestamp")),
    *(f"next_day(t1, '{day}')" for day in ("Mon", "MONDAY", "tu", "Sun", "xx")),
    *(f"CAST({value!r} AS {kind})" for value in _WRITTEN_TIMES for kind in ("timestamp", "date", "timestamp_ntz")),
    *(f"{name}({value!r})" for value in _WRITTEN_TIMES for name in ("to_date", "to_timestamp", "try_to_timestamp")),
    *(f"{word}('{value}' AS {kind})" for value in _NUMBERS for word in ("CAST", "TRY_CAST") for kind in ("tinyint", "int", "bigint", "float", "double",
      "decimal(10,2)", "decimal(38,6)", "boolean")),
    *_STRINGS, *(f"s1 = {text}" for text in _STRINGS), *(f"concat(s1, {text})" for text in _STRINGS), *(f"length({text})" for text in _STRINGS),
    *(f"{of} {sign} INTERVAL {span}" for of in ("p1", "t1") for sign in "+-" for span in ("1 HOUR", "1 DAY", "1 MONTH", "1 YEAR", "'1' SECOND", "1.5 SECONDS",
      "90 MINUTES", "2 WEEKS", "-3 DAYS", "'1 2' DAY TO HOUR", "'1-2' YEAR TO MONTH", "1 DAY 2 HOURS", "'2 days'", "3 MILLISECONDS")),
    *(f"INTERVAL {span} + p1" for span in ("1 HOUR", "1 MONTH", "1 DAY")), "p1 + i1 * INTERVAL 1 SECOND", "p1 + INTERVAL 1 HOUR * 2", "p1 + n1 * INTERVAL 1 DAY",
    *(f"p1 {operator} '2020-01-31'" for operator in ("=", "<", ">=")), *(f"t1 {operator} '2020-01-31'" for operator in ("=", "<", ">=")),
    *(f"i1 {operator} '{value}'" for operator in ("=", "<", "+", "*") for value in ("3", "x", " 3 ", "3.0")),
    "DATE '2020-01-31'", "DATE '0001-01-01'", "DATE '9999-12-31'", "DATE '2020-1-1'", "DATE '2020'", "DATE 'epoch'", "TIMESTAMP '2020-01-31 10:11:12.123456'",
    "TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '9999-12-31 23:59:59.999999'", "TIMESTAMP '2020-01-31'", "TIMESTAMP '2020-01-31 10:11:12+02:00'",
    "TIMESTAMP '2020-01-31T10:11:12Z'", "TIMESTAMP_NTZ '2020-01-31 10:11:12'", "1", "-1", "2147483647", "-2147483648", "2147483648", "9223372036854775807",
    "-9223372036854775808", "1L", "-9223372036854775808L", "1S", "1Y", "-128Y", "1.5", "-1.50", "0.1", "1e3", "1D", "1F", "1.5BD", "1e-7", "1.7e308", "X'41'", "X''", "TRUE",
    "false", "NULL", "12345678901234567890123456789012345678", "0.00000000000000000000000000000000000001", "99999999999999999999", ".5", "5.",
    *(f"CAST({text} AS {kind})" for text in ("d1 * d2", "d1 / d2", "d1 / 3", "w1 * w2", "w1 / w2", "1.0 / 3", "z1 / 3", "z1 * z2", "z1 + z2", "z1 % z2", "d1 % 2")
      for kind in ("double", "string", "decimal(20,6)", "bigint")),
    *(f"{one} {operator} {two}" for one in ("d1", "w1", "z1") for two in ("d2", "w2", "z2", "i2", "n2", "1.5", "2", "0.1") for operator in "+-*/%"),
    *(f"round({of}, {places})" for of in ("f1", "g1", "d1", "w1", "z1", "i1", "n1", "y1") for places in (-2, -1, 0, 1, 2, 5, 10)),
    *(f"bround({of}, {places})" for of in ("f1", "d1", "i1", "w1") for places in (-2, -1, 0, 1, 2, 5)),
    *(f"{name}({of}, {places})" for name in ("ceil", "floor") for of in ("f1", "d1") for places in (-1, 0, 1)),
    *(f"CAST({of} AS decimal({digits}))" for of in ("f1", "d1", "w1", "i1", "s1", "z1", "g1", "n1") for digits in ("5,1", "10,2", "3,3", "38,10", "18,0", "20,5")),
    *(f"(i1 * 1) {operator} (i2 * 1)" for operator in "+-*"), *(f"(i1 * 1) {operator} n2" for operator in "+-*"), "1.0 / 3", "d1 / 3", "3 / d1", "1.5 / d2", "1.5 + 2.25", "1.5 * 2.25", "1 / 3.0", "d1 / 7", "w1 / 3", "CAST(d1 AS decimal(38,10)) / 3",
    "current_timestamp()", "current_date()", "now()", "pi()", "e()", "i1.a", "uuid()",
]  # fmt: skip
