"""Nexmark's queries in Flink SQL, for the Python of an environment with ``apache-flink``; ``bench/auctions.py`` starts it.

Reads the tables of a folder as CSV. In batch an answer is written as CSV; as a stream, where most results change, rows go to Flink's blackhole. CPU seconds
are measured by the program that starts it, between ``began`` and ``measured``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

COLUMNS = {
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP(3), extra STRING, `number` BIGINT",
    "auction": "id BIGINT, seller BIGINT, category BIGINT, initial_bid BIGINT, reserve BIGINT, date_time TIMESTAMP(3), expires TIMESTAMP(3), `number` BIGINT",
    "person": "id BIGINT, name STRING, city STRING, state STRING, date_time TIMESTAMP(3), `number` BIGINT",
    "side_input": "`key` BIGINT, `value` STRING",
}
"""Table -> its columns, as the CSV has them."""
_BIDS = "TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
_RANKS = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
_COUNTS = ", ".join(
    f"COUNT({what}), " + ", ".join(f"COUNT({what}) FILTER (WHERE {rank})" for rank in _RANKS)
    for what in ("*", "DISTINCT bidder", "DISTINCT auction")
)
_DAY = "DATE_FORMAT(date_time, 'yyyy-MM-dd')"
_STATISTICS = f"COUNT(*), {', '.join(f'COUNT(*) FILTER (WHERE {rank})' for rank in _RANKS)}, MIN(price), MAX(price), AVG(CAST(price AS DOUBLE)), SUM(price)"
_WON = "FROM auction AS a, bid AS b WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires"
_CHANNEL = """CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1' WHEN lower(channel) = 'facebook' THEN '2'
    WHEN lower(channel) = 'baidu' THEN '3' ELSE regexp_extract(url, 'channel_id=([0-9]*)', 1) END"""
_TIME = """CASE WHEN HOUR(date_time) >= 8 AND HOUR(date_time) <= 18 THEN 'dayTime' WHEN HOUR(date_time) <= 6 OR HOUR(date_time) >= 20 THEN 'nightTime'
    ELSE 'otherTime' END"""
QUERIES = {
    "q0": "SELECT auction, bidder, price, date_time FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price, date_time FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction IN (1007, 1020, 2001, 2019, 2087)",
    "q3": "SELECT p.name, p.city, p.state, a.id FROM auction AS a JOIN person AS p ON a.seller = p.id WHERE a.category = 10 AND p.state IN ('or', 'id', 'ca')",
    "q4": f"SELECT category, AVG(CAST(final AS DOUBLE)) FROM (SELECT MAX(b.price) AS final, a.category {_WON} GROUP BY a.id, a.category) GROUP BY category",
    "q5": f"""SELECT b.auction, b.num FROM (SELECT auction, COUNT(*) AS num, window_start, window_end FROM {_BIDS} GROUP BY auction, window_start, window_end) AS b
        JOIN (SELECT MAX(num) AS most, window_start, window_end FROM (SELECT COUNT(*) AS num, window_start, window_end FROM {_BIDS}
        GROUP BY auction, window_start, window_end) GROUP BY window_start, window_end) AS m
        ON b.window_start = m.window_start AND b.window_end = m.window_end AND b.num >= m.most""",
    "q7": """SELECT auction, price, bidder, date_time FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC, `number`) AS rn
        FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND))) WHERE rn <= 1""",
    "q8": """SELECT DISTINCT p.id, p.name, p.window_start FROM (SELECT id, name, window_start, window_end FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
        GROUP BY id, name, window_start, window_end) AS p JOIN (SELECT seller, window_start, window_end FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
        GROUP BY seller, window_start, window_end) AS a ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end""",
    "q9": f"""SELECT id, seller, bidder, price, bid_time FROM (SELECT a.id, a.seller, b.bidder, b.price, b.date_time AS bid_time,
        ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.`number`) AS rn {_WON}) WHERE rn <= 1""",
    "q10": f"SELECT auction, bidder, price, date_time, {_DAY}, DATE_FORMAT(date_time, 'HH:mm') FROM bid",
    "q11": """SELECT bidder, COUNT(*), window_start, window_end FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '2' SECOND))
        GROUP BY bidder, window_start, window_end""",
    "q13": "SELECT auction, bidder, price, `value` FROM bid JOIN side_input ON MOD(auction, 100) = `key`",
    "q14": f"""SELECT auction, bidder, 0.908 * price, {_TIME}, date_time, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) FROM bid
        WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": f"SELECT {_DAY}, {_COUNTS} FROM bid GROUP BY {_DAY}",
    "q16": f"SELECT channel, {_DAY}, {_COUNTS} FROM bid GROUP BY channel, {_DAY}",
    "q17": f"SELECT auction, {_DAY}, {_STATISTICS} FROM bid GROUP BY auction, {_DAY}",
    "q18": "SELECT auction, bidder, price, date_time FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC, `number`) AS rn FROM bid) WHERE rn <= 1",
    "q19": """SELECT auction, bidder, price, channel, url, date_time, extra, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, `number`) AS rn FROM bid)
        WHERE rn <= 10""",
    "q20": "SELECT b.auction, b.bidder, b.price, a.category FROM bid AS b JOIN auction AS a ON b.auction = a.id WHERE a.category = 10",
    "q21": f"""SELECT auction, bidder, price, channel, {_CHANNEL} FROM bid
        WHERE lower(channel) IN ('apple', 'google', 'facebook', 'baidu') OR url LIKE '%channel_id=%'""",
    "q22": "SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3), SPLIT_INDEX(url, '/', 4), SPLIT_INDEX(url, '/', 5) FROM bid",
}  # fmt: skip


def main() -> None:
    """(folder of the work, modes, queries) from the command line."""
    place, modes, *queries = sys.argv[1:]
    for mode in modes.split(","):
        for number, query in enumerate(query for query in queries if query in QUERIES):
            for events in ("warm", "data"):
                tables = environment(mode, Path(place, f"{events}-csv"))
                path = Path(place, "pyflink", mode, query if events == "data" else f"{query}-warm")
                print("began", mode, query, flush=True)
                try:
                    seconds = run(tables, query, f"sink_{number}", path if mode == "bounded" else None)
                except Exception as error:  # noqa: BLE001 - the table says it
                    print("measured " + json.dumps([mode, query, str(error).splitlines()[0]]), flush=True)
                    break
                if events == "data":
                    print("measured " + json.dumps([mode, query, seconds, None]), flush=True)


def environment(mode: str, data: Path) -> TableEnvironment:
    """The tables in a folder, in batch or as streams."""
    bounded = mode == "bounded"
    settings = EnvironmentSettings.in_batch_mode() if bounded else EnvironmentSettings.in_streaming_mode()
    tables = TableEnvironment.create(settings)
    tables.get_config().set("parallelism.default", "2")
    for name, columns in COLUMNS.items():
        watermark = ", WATERMARK FOR date_time AS date_time" if "date_time" in columns else ""
        tables.execute_sql(
            f"CREATE TABLE {name} ({columns}{watermark}) WITH ('connector' = 'filesystem', 'path' = 'file://{data}/{name}.csv', 'format' = 'csv')"
        )
    return tables


def run(tables: TableEnvironment, query: str, sink: str, path: Path | None) -> float:
    """Seconds of a query into CSV at a path, or into a sink that drops rows."""
    began = time.perf_counter()
    answer = tables.sql_query(QUERIES[query])
    kinds = answer.get_schema().get_field_data_types()
    columns = ", ".join(f"c{place} {_sql(kind)}" for place, kind in enumerate(kinds))
    own = "'connector' = 'blackhole'"
    if path is not None:
        own = f"'connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'csv'"
    tables.execute_sql(f"CREATE TABLE {sink} ({columns}) WITH ({own})")
    answer.execute_insert(sink).wait()
    return time.perf_counter() - began


def _sql(kind: object) -> str:
    """A type of a result as the text of a declaration."""
    text = str(kind)
    for word in ("DOUBLE", "BIGINT", "INT"):
        if text.upper().startswith(word):
            return word
    if "TIMESTAMP" in text.upper():
        return "TIMESTAMP(3)"
    return "DECIMAL(38, 3)" if text.upper().startswith("DECIMAL") else "STRING"


if __name__ == "__main__":
    main()
