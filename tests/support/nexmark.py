"""Nexmark over a small auction: its tables, its queries as statements, and the same questions for DuckDB.

The queries are those of Nexmark (Tucker, Tufte, Papadimos, Maier, 2002) and of its later forms. Of the texts in ``extra`` only the letter that a query counts is there.
"""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from floodmark import Contract, EventTime

FOLDER = Path(__file__).parents[1] / "cases" / "nexmark"


class Bid(Contract):
    """A bid."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: EventTime
    extra: str


class Auction(Contract):
    """An auction."""

    id: int
    seller: int
    category: int
    initial_bid: int
    reserve: int
    date_time: EventTime
    expires: datetime


class Person(Contract):
    """A person who sells and bids."""

    id: int
    name: str
    city: str
    state: str
    date_time: EventTime


TABLES: dict[str, type[Contract]] = {"bid": Bid, "auction": Auction, "person": Person}


def rows() -> dict[str, list[dict[str, Any]]]:
    """The rows of each table in order of event time."""
    read: dict[str, list[dict[str, Any]]] = {}
    for name, contract in TABLES.items():
        with (FOLDER / f"{name}.csv").open(encoding="utf-8") as file:
            read[name] = [
                {column: _value(text, contract.model_fields[column].annotation) for column, text in row.items()}
                for row in csv.DictReader(file)
            ]
        read[name].sort(key=lambda row: row["date_time"])
    return read


def _value(text: str, kind: Any) -> Any:
    if kind is int:
        return int(text)
    return datetime.fromisoformat(text).replace(tzinfo=UTC) if kind is datetime else text


_DAY = "date_format(date_time, 'yyyy-MM-dd')"
_DUCK_DAY = "strftime(date_time, '%Y-%m-%d')"
_TEN = "time_bucket(INTERVAL '10 seconds', date_time)"


def _by_rank(
    count: str,
    bounds: tuple[str, str, str] = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000"),
) -> str:
    return ", ".join(f"COUNT({count}) FILTER (WHERE {bound}) AS r{n}" for n, bound in enumerate(bounds, 1))


_RANKS = ", ".join(
    f"COUNT({what}) AS t{n}, {_by_rank(what).replace(' AS r', f' AS c{n}_')}"
    for n, what in enumerate(("*", "DISTINCT bidder", "DISTINCT auction"))
)
_STATISTICS = f"COUNT(*) AS total, {_by_rank('*')}, MIN(price) AS least, MAX(price) AS most, AVG(price) AS mean, SUM(price) AS sum"
_NIGHT = "CASE WHEN {0}(date_time) >= 8 AND {0}(date_time) <= 18 THEN 'dayTime' WHEN {0}(date_time) <= 6 OR {0}(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END"
_CHANNEL = "CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1' WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3' ELSE {0} END"
_Q14 = "FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000"
_Q3 = "FROM auction AS a JOIN person AS p ON a.seller = p.id WHERE a.category = 10 AND p.state IN ('or', 'id', 'ca')"
_Q4 = """FROM (SELECT MAX(b.price) AS final, a.category FROM auction AS a, bid AS b
    WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category) AS q GROUP BY category"""
_Q20 = "FROM bid AS b JOIN auction AS a ON b.auction = a.id WHERE a.category = 10"

_Q6 = """AVG(final) OVER (PARTITION BY seller ORDER BY date_time, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS mean
    FROM (SELECT a.id, a.seller, b.price AS final, b.date_time, ROW_NUMBER() OVER (PARTITION BY a.id, a.seller ORDER BY b.price DESC, b.date_time) AS rn
    FROM auction AS a, bid AS b WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires) AS q WHERE rn <= 1"""

QUERIES: dict[str, tuple[list[str], str]] = {
    "q0": (["SELECT auction, bidder, price, date_time FROM bid"], "SELECT auction, bidder, price, date_time FROM bid"),
    "q1": (
        ["SELECT auction, bidder, 0.908 * price AS price, date_time FROM bid"],
        "SELECT auction, bidder, 0.908 * price, date_time FROM bid",
    ),
    "q2": (
        ["SELECT auction, price FROM bid WHERE auction IN (1007, 1020, 2001, 2019, 2087)"],
        "SELECT auction, price FROM bid WHERE auction IN (1007, 1020, 2001, 2019, 2087)",
    ),
    "q3": (
        [f"SELECT p.name, p.city, p.state, a.id {_Q3} EMIT CHANGES"],
        f"SELECT p.name, p.city, p.state, a.id {_Q3}",
    ),
    "q4": (
        [f"SELECT category, AVG(final) AS mean {_Q4} EMIT CHANGES"],
        f"SELECT category, AVG(final) {_Q4}",
    ),
    "q5": (
        [
            """SELECT b.auction, b.num FROM (
                SELECT auction, COUNT(*) AS num, window_start AS starttime, window_end AS endtime
                FROM TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) GROUP BY auction, window_start, window_end
            ) AS b JOIN (
                SELECT MAX(c.num) AS maxn, c.starttime, c.endtime FROM (
                    SELECT COUNT(*) AS num, window_start AS starttime, window_end AS endtime
                    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) GROUP BY auction, window_start, window_end
                ) AS c GROUP BY c.starttime, c.endtime
            ) AS m ON b.starttime = m.starttime AND b.endtime = m.endtime AND b.num >= m.maxn"""
        ],
        """WITH bids AS (SELECT auction, w, COUNT(*) AS num FROM bid, range(5) AS s(i),
             LATERAL (SELECT time_bucket(INTERVAL '2 seconds', date_time) - i * INTERVAL '2 seconds' AS w) GROUP BY ALL)
           SELECT auction, num FROM bids WHERE num = (SELECT MAX(o.num) FROM bids AS o WHERE o.w = bids.w)""",
    ),
    "q6": ([f"SELECT seller, {_Q6} EMIT CHANGES"], f"SELECT seller, {_Q6}"),
    "q7": (
        [
            """SELECT auction, price, bidder, date_time
            FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS rn FROM TUMBLE(bid, date_time, '10 seconds')) WHERE rn = 1"""
        ],
        f"SELECT auction, price, bidder, date_time FROM bid QUALIFY ROW_NUMBER() OVER (PARTITION BY {_TEN} ORDER BY price DESC) = 1",
    ),
    "q8": (
        [
            """SELECT p.id, p.name, p.window_start AS starttime FROM (SELECT * FROM TUMBLE(person, date_time, '10 seconds')) AS p
            LEFT SEMI JOIN (SELECT * FROM TUMBLE(auction, date_time, '10 seconds')) AS a
            ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end"""
        ],
        f"SELECT DISTINCT p.id, p.name, p.w FROM (SELECT *, {_TEN} AS w FROM person) AS p JOIN (SELECT *, {_TEN} AS w FROM auction) AS a ON p.id = a.seller AND p.w = a.w",
    ),
    "q9": (
        [
            """SELECT id, seller, bidder, price, bid_time FROM (
            SELECT a.id, a.seller, b.bidder, b.price, b.date_time AS bid_time, ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) AS rn
            FROM auction AS a, bid AS b WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires) WHERE rn = 1 EMIT CHANGES"""
        ],
        """SELECT a.id, a.seller, b.bidder, b.price, b.date_time FROM auction AS a JOIN bid AS b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
        QUALIFY ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.number) = 1""",
    ),
    "q10": (
        [f"SELECT auction, bidder, price, date_time, {_DAY} AS date, date_format(date_time, 'HH:mm') AS time FROM bid"],
        f"SELECT auction, bidder, price, date_time, {_DUCK_DAY}, strftime(date_time, '%H:%M') FROM bid",
    ),
    "q11": (
        [
            "SELECT bidder, COUNT(*) AS bids, window_start, window_end FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '2' SECONDS)) GROUP BY bidder, window_start, window_end"
        ],
        """WITH begun AS (SELECT *, COALESCE(date_time - LAG(date_time) OVER b > INTERVAL '2 seconds', TRUE) AS begins FROM bid WINDOW b AS (PARTITION BY bidder ORDER BY date_time)),
           numbered AS (SELECT *, SUM(begins::INT) OVER (PARTITION BY bidder ORDER BY date_time RANGE UNBOUNDED PRECEDING) AS n FROM begun)
           SELECT bidder, COUNT(*), MIN(date_time), MAX(date_time) + INTERVAL '2 seconds' FROM numbered GROUP BY bidder, n""",
    ),
    "q14": (
        [
            f"SELECT auction, bidder, 0.908 * price AS price, {_NIGHT.format('hour')} AS bid_time_type, date_time, length(extra) - length(replace(extra, 'c', '')) AS c_counts {_Q14}"
        ],
        f"SELECT auction, bidder, 0.908 * price, {_NIGHT.format('hour')}, date_time, length(extra) - length(replace(extra, 'c', '')) {_Q14}",
    ),
    "q15": (
        [f"SELECT {_DAY} AS day, {_RANKS} FROM bid GROUP BY {_DAY} EMIT CHANGES"],
        f"SELECT {_DUCK_DAY} AS day, {_RANKS} FROM bid GROUP BY 1",
    ),
    "q16": (
        [f"SELECT channel, {_DAY} AS day, {_RANKS} FROM bid GROUP BY channel, {_DAY} EMIT CHANGES"],
        f"SELECT channel, {_DUCK_DAY} AS day, {_RANKS} FROM bid GROUP BY 1, 2",
    ),
    "q17": (
        [f"SELECT auction, {_DAY} AS day, {_STATISTICS} FROM bid GROUP BY auction, {_DAY} EMIT CHANGES"],
        f"SELECT auction, {_DUCK_DAY} AS day, {_STATISTICS} FROM bid GROUP BY 1, 2",
    ),
    "q18": (
        [
            """SELECT auction, bidder, price, date_time FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS rn FROM bid)
            WHERE rn = 1 EMIT CHANGES"""
        ],
        "SELECT auction, bidder, price, date_time FROM bid QUALIFY ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC, number) = 1",
    ),
    "q20": (
        [f"SELECT b.auction, b.bidder, b.price, a.category {_Q20} EMIT CHANGES"],
        f"SELECT b.auction, b.bidder, b.price, a.category {_Q20}",
    ),
    "q19": (
        [
            """SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid)
            WHERE rank_number <= 10 EMIT CHANGES"""
        ],
        """SELECT auction, bidder, price, channel, url, date_time, extra, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, number) AS rank_number
        FROM bid QUALIFY rank_number <= 10""",
    ),
    "q21": (
        [
            f"""SELECT auction, bidder, price, channel, {_CHANNEL.format("regexp_extract(url, 'channel_id=([0-9]*)', 1)")} AS channel_id FROM bid
            WHERE lower(channel) IN ('apple', 'google', 'facebook', 'baidu') OR url LIKE '%channel_id=%'"""
        ],
        f"""SELECT auction, bidder, price, channel, {_CHANNEL.format("regexp_extract(url, 'channel_id=([0-9]*)', 1)")} FROM bid
        WHERE lower(channel) IN ('apple', 'google', 'facebook', 'baidu') OR url LIKE '%channel_id=%'""",
    ),
    "q22": (
        [
            "SELECT auction, bidder, price, channel, split(url, '/')[3] AS dir1, split(url, '/')[4] AS dir2, split(url, '/')[5] AS dir3 FROM bid"
        ],
        "SELECT auction, bidder, price, channel, split(url, '/')[4], split(url, '/')[5], split(url, '/')[6] FROM bid",
    ),
}  # fmt: skip
"""Query -> its statements, each an operator that may read those before it, and the question for DuckDB."""

SIDE_INPUT = "SELECT b.auction, b.bidder, b.price, s.value FROM (SELECT *, PROCTIME() AS now FROM bid) AS b JOIN side_input FOR SYSTEM_TIME AS OF b.now AS s ON mod(b.auction, 100) = s.key"
"""q13, whose second table is no source, and is not among the published data."""

SIZES = {"q0": 50, "q1": 50, "q2": 1, "q5": 17, "q7": 3, "q8": 7, "q10": 50, "q14": 12, "q15": 1, "q18": 24, "q21": 48}
"""Rows of the published answers."""
