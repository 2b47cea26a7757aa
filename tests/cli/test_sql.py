"""``floodmark sql``: statements over a lake, answered at once; nothing is written."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from .conftest import command, program

HOURS = "SELECT country, window_start, COUNT(*) AS n FROM TUMBLE(orders, ordered_at, '1 hour') GROUP BY country, window_start"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose orders have landed."""
    parent = tmp_path_factory.mktemp("sql")
    assert program(parent, "init", "shop").returncode == 0
    folder = parent / "shop"
    assert program(folder, "land", "orders").returncode == 0
    return folder


def files(shop: Path) -> list[Path]:
    return sorted(path for path in (shop / "lake").rglob("*") if path.is_file())


def answers(shop: Path, sql: str, *options: str) -> list[dict[str, object]]:
    done = program(shop, "sql", sql, "--format", "json", *options)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.feature("Q1", "Q3")
def test_a_window_is_answered_bounded_and_as_rows_come_and_nothing_is_written(shop: Path) -> None:
    before = files(shop)
    bounded = answers(shop, f"{HOURS} ORDER BY n DESC, country LIMIT 2")
    assert bounded == [
        {"country": "DE", "window_start": "2025-03-01 08:00:00+00:00", "n": 5},
        {"country": "DE", "window_start": "2025-03-01 10:00:00+00:00", "n": 2},
    ]
    came = answers(shop, HOURS, "--unbounded", "--until-caught-up")
    assert {(row["country"], row["n"]) for row in came} >= {("DE", 5)}
    assert files(shop) == before


@pytest.mark.feature("Z17")
@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT country, COUNT(*) AS n FROM orders GROUP BY country ORDER BY n DESC", [("DE", 12), ("FR", 7)]),
        ("SELECT country, COUNT(*) AS n FROM orders GROUP BY country HAVING COUNT(*) > 1 ORDER BY COUNT(*)", [("FR", 7), ("DE", 12)]),
        ("SELECT country FROM orders QUALIFY ROW_NUMBER() OVER (PARTITION BY country ORDER BY items DESC) = 1 ORDER BY country DESC", [("FR",), ("DE",)]),
        ("SELECT country, items FROM Orders WHERE (country, items) NOT IN (SELECT CAST(NULL AS string), 5 FROM orders) ORDER BY items DESC LIMIT 1", [("DE", 4)]),
        ("SELECT LISTAGG(DISTINCT country, ',') WITHIN GROUP (ORDER BY country DESC) AS l, COUNT(*) AS n FROM orders", [("FR,DE", 19)]),
        ("SELECT DISTINCT a.country, b.n FROM orders AS a CROSS JOIN (SELECT COUNT(*) AS n FROM orders) AS b ORDER BY 1", [("DE", 19), ("FR", 19)]),
    ],
)  # fmt: skip
def test_what_no_stream_can_say_is_answered_over_the_rows_there_are(
    shop: Path, sql: str, rows: list[tuple[object, ...]]
) -> None:
    assert [tuple(row.values()) for row in answers(shop, sql)] == rows


def test_rows_come_as_a_table_as_csv_and_as_arrow(shop: Path) -> None:
    sql = "SELECT country, items FROM orders WHERE items > 4"
    assert program(shop, "sql", sql).stdout.split() == ["country", "items", "FR", "5"]
    assert program(shop, "sql", sql, "--format", "csv").stdout == "country,items\nFR,5\n"
    stream = subprocess.run(
        [sys.executable, *command("sql", sql, "--format", "arrow")[1:]], cwd=shop, capture_output=True, check=True
    )
    assert pa.ipc.open_stream(io.BytesIO(stream.stdout)).read_all().to_pylist() == [{"country": "FR", "items": 5}]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("DROP TABLE orders", "DEFINITION-382"),
        ("SELECT contry FROM orders", "Did you mean 'country'"),
        ("SELECT * FROM `/etc/passwd`", "DEFINITION-394"),
        ("SELECT * FROM text.`/etc/passwd` ORDER BY 1", "DEFINITION-394"),
        ("SELECT * FROM hourly_sales ORDER BY 1", "EXECUTION-081"),
        (
            "SELECT o.items, w.n FROM orders AS o,\n  LATERAL (SELECT COUNT(*) AS n FROM orders AS p WHERE p.items > o.items) AS w",
            "EXECUTION-080 operator 'statement', line 2, column",
        ),
        (
            "SELECT items FROM orders WHERE items > ALL (SELECT items FROM orders)",
            "EXECUTION-080 operator 'statement', line 1, column 33: expected one that Sail computes, got invalid argument: found items at 49:54. Compare with the greatest",
        ),
        ("SELECT bogus FROM orders GROUP BY bogus", "DEFINITION-022 operator 'statement', line 1, column 8"),
        ("SELECT initcap(country) AS c FROM orders", "CAPABILITY-031 statement, line 1, column 8"),
        ("SELECT decode(country, 'DE', 1, 2) AS c FROM orders", "CASE x WHEN a THEN b ELSE c END"),
        (
            "EXPLAIN SELECT country FROM orders",
            "DEFINITION-382 statement, line 1, column 1",
        ),
    ],
)
@pytest.mark.few(3)
def test_what_reads_no_table_of_the_lake_is_refused(shop: Path, sql: str, said: str) -> None:
    done = program(shop, "sql", sql)
    assert done.returncode == 1
    assert said in done.stderr


def test_a_workspace_of_sql_files_computes_what_that_of_python_does(tmp_path: Path) -> None:
    assert program(tmp_path, "init", "stated", "--sql").returncode == 0
    folder = tmp_path / "stated"
    explained = program(folder, "explain", "hourly_sales", "--json")
    assert explained.returncode == 0, explained.stderr
    assert program(tmp_path, "init", "shop").returncode == 0
    fluent = json.loads(program(tmp_path / "shop", "explain", "hourly_sales", "--json").stdout)
    assert json.loads(explained.stdout)["fingerprint"] == fluent["fingerprint"]
    assert program(folder, "land", "orders").returncode == 0
    done = program(folder, "run", "hourly_sales", "good_hours", "--unbounded", "--until-caught-up")
    assert done.returncode == 0, done.stderr
    assert answers(folder, "SELECT country, orders FROM good_hours ORDER BY 2 DESC LIMIT 1")[0]["country"] == "DE"
    asked = "SELECT country, window_start, orders FROM {} ORDER BY 3 DESC, 1, 2"
    last = answers(folder, asked.format("hourly_sales__current"))
    assert last == answers(folder, asked.format("hourly_sales"))
    assert last[0]["orders"] == 6
    (folder / "operators" / "hourly_sales.sql").write_text("SELECT country, itms FROM orders", "utf-8")
    wrong = program(folder, "validate")
    assert wrong.returncode == 1
    assert "hourly_sales.sql, line 1, column 17" in wrong.stderr
    assert "Did you mean 'items'?" in wrong.stderr


@pytest.fixture
def fork(tmp_path: Path) -> Path:
    """A workspace with a fork, `laptop`, whose stream has read one file more than that of the lake has."""
    assert program(tmp_path, "init", "shop").returncode == 0
    folder, stream = tmp_path / "shop", ("run", "hourly_sales", "--unbounded", "--until-caught-up")
    (folder / "inbox" / "orders" / "later.txt").write_text(
        "ordered_at,order_id,country,items,cents,voucher\n2025-03-01T12:10:00Z,1020,NL,1,4200,\n2025-03-01T19:00:00Z,1021,NL,1,4200,\n"
    )
    for words in (("land", "orders"), ("run", "voucher_use"), stream, ("savepoint", "create", "hourly_sales")):
        assert program(folder, *words).returncode == 0
    (saved,) = json.loads(program(folder, "savepoint", "list", "hourly_sales", "--json").stdout)["savepoints"]
    (folder / "inbox" / "orders" / "later.txt").rename(folder / "inbox" / "orders" / "later.csv")
    made = ("fork", "hourly_sales", "--from", saved["id"], "--into", "laptop", "--fresh")
    for words in (("land", "orders"), made, (*stream, "--lake", "laptop")):
        done = program(folder, *words)
        assert done.returncode == 0, done.stderr
    return folder


def test_a_fork_is_asked_for_its_own_results_and_for_those_of_the_lake_it_reads(fork: Path) -> None:
    countries = "SELECT DISTINCT country FROM hourly_sales ORDER BY 1"
    assert [row["country"] for row in answers(fork, countries)] == ["DE", "FR"]
    assert [row["country"] for row in answers(fork, countries, "--lake", "laptop")] == ["DE", "FR", "NL"]
    vouchers = "SELECT COUNT(*) AS n FROM voucher_use"
    assert answers(fork, vouchers, "--lake", "laptop") == answers(fork, vouchers)
    mixed = (
        "SELECT h.country, v.orders FROM hourly_sales AS h JOIN voucher_use AS v ON h.orders = v.orders EMIT CHANGES"
    )
    done = program(fork, "sql", mixed, "--lake", "laptop")
    assert done.returncode == 1
    assert "DEFINITION-472 statement\n  expected: outputs of one lake" in done.stderr
    assert f"'voucher_use' of {fork}/lake" in done.stderr
