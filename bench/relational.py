"""A sort of all rows and a hash join of a large and a small table, on two cores: floodmark's statements, Spark, DuckDB and polars.

    python bench/relational.py [--records 2000000] [--orders 5000000] [--shops 10000] [--only sort,join] [--direct 5]

``sort`` is that of TeraSort at the size of a laptop: records of 100 bytes, of which ten are a random key, sorted into Parquet files. The result is validated as
TeraValidate does: each key is no smaller than the one before it, over all files in order; and the rows are those of the input, by their number and the sum
of their checksums. ``join`` takes orders with their shops, one of so many, and sums the amounts per region of the shops; every answer is DuckDB's. Each system reads the same Delta
tables (polars and DuckDB their files) in a process of its own: seconds, processor seconds and peak memory of whole process trees, imports and the start of Java with them.

``--direct 5`` compares statements as ``floodmark sql`` answers them with the same text given to Sail directly, five times each in turn on one server that is there: processor seconds
of this process and the server, the least of each, and the share of them that the direct run takes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve().parent
SORT = "SELECT key, payload FROM records ORDER BY key"
JOIN = "SELECT region, CAST(sum(amount) AS BIGINT) AS total, count(*) AS n FROM orders JOIN shops ON orders.shop = shops.shop GROUP BY region"
COLUMNS = {
    "records": {"key": "string", "payload": "string"},
    "orders": {"number": "bigint", "shop": "bigint", "amount": "bigint"},
    "shops": {"shop": "bigint", "region": "string"},
}
DIRECT = {
    "sort": SORT,
    "join": JOIN,
    "filter": "SELECT number, amount * 2 AS twice FROM orders WHERE amount > 5000",
    "groups": "SELECT shop, count(*) AS n, max(amount) AS most FROM orders GROUP BY shop",
    "window": "SELECT number, rank() OVER (PARTITION BY shop ORDER BY amount DESC, number) AS place FROM orders",
}
TABLES = {"sort": ("records",), "join": ("orders", "shops")}


# ---- each system: (folder of the tables, what, folder of the result)


def made_of(folder: Path, names: tuple[str, ...]) -> dict[str, Any]:
    """The tables of a folder as floodmark reads them."""
    from floodmark.engines.embedded.bounded.query import Table
    from floodmark.spec.values.schema import Column, Schema

    columns = {name: tuple(Column(name=one, type=kind) for one, kind in COLUMNS[name].items()) for name in names}
    return {name: Table(str(folder / name), Schema(own), stamped=False) for name, own in columns.items()}


def floodmark(folder: Path, what: str, out: Path) -> None:
    import pyarrow.parquet as pq

    from floodmark.engines.embedded.bounded.query import query
    from floodmark.engines.embedded.sail.session import Sail

    sail = Sail()
    rows = query(sail, SORT if what == "sort" else JOIN, made_of(folder, TABLES[what]))
    pq.write_table(rows, out / "0.parquet")
    sail.close()


def spark(folder: Path, what: str, out: Path, hint: str = "") -> None:
    import systems

    session = systems.session()
    for name in TABLES[what]:
        session.read.format("delta").load(str(folder / name)).createOrReplaceTempView(name)
    text = SORT if what == "sort" else JOIN.replace("SELECT", f"SELECT {hint}", 1)
    session.sql(text).write.mode("overwrite").parquet(str(out))


def spark_shuffled(folder: Path, what: str, out: Path) -> None:
    spark(folder, what, out, "/*+ SHUFFLE_HASH(shops) */")


def duck(folder: Path, what: str, out: Path) -> None:
    import duckdb

    for name in TABLES[what]:
        duckdb.sql(f"CREATE VIEW {name} AS SELECT * FROM '{folder / name}/*.parquet'")
    duckdb.sql(f"COPY ({SORT if what == 'sort' else JOIN}) TO '{out}/0.parquet' (FORMAT parquet)")


def polars(folder: Path, what: str, out: Path) -> None:
    import polars as pl

    tables = {name: pl.scan_parquet(f"{folder / name}/*.parquet") for name in TABLES[what]}
    if what == "sort":
        rows = tables["records"].sort("key")
    else:
        joined = tables["orders"].join(tables["shops"], on="shop")
        rows = joined.group_by("region").agg(pl.col("amount").sum().alias("total"), pl.len().cast(pl.Int64).alias("n"))
    rows.sink_parquet(out / "0.parquet")


SYSTEMS: dict[str, tuple[Callable[[Path, str, Path], None], tuple[str, ...]]] = {
    "duckdb": (duck, ("sort", "join")),
    "polars": (polars, ("sort", "join")),
    "floodmark sql (embedded)": (floodmark, ("sort", "join")),
    "spark": (spark, ("sort", "join")),
    "spark, side not broadcast": (spark_shuffled, ("join",)),
}


# ---- tables and answers


def make(folder: Path, what: str, asked: argparse.Namespace) -> int:
    """The tables of a benchmark, eight files each; their bytes in memory."""
    import numpy as np
    import pyarrow as pa
    from deltalake import write_deltalake

    rng, size = np.random.default_rng(1), 0

    def write(name: str, table: pa.Table) -> int:
        write_deltalake(str(folder / name), table, mode="append")
        return int(table.nbytes)

    if what == "sort":
        letters = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", dtype=np.uint8)
        for _ in range(8):
            rows = asked.records // 8
            texts = [letters[rng.integers(0, 32, (rows, width))].tobytes() for width in (10, 90)]
            columns = [
                pa.Array.from_buffers(
                    pa.string(),
                    rows,
                    [None, pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * width), pa.py_buffer(text)],
                )
                for text, width in zip(texts, (10, 90), strict=True)
            ]
            size += write("records", pa.table({"key": columns[0], "payload": columns[1]}))
        return size
    for part in range(8):
        rows = asked.orders // 8
        orders = {
            "number": np.arange(rows) + part * rows,
            "shop": rng.integers(0, asked.shops, rows),
            "amount": rng.integers(1, 10_000, rows),
        }
        size += write("orders", pa.table(orders))
    shops = np.arange(asked.shops)
    return size + write("shops", pa.table({"shop": shops, "region": np.array([f"region {n % 50}" for n in shops])}))


def right(folder: Path, what: str, out: Path) -> bool:
    """Whether a result is valid."""
    import duckdb
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    files = sorted(str(path) for path in out.rglob("*.parquet"))
    if what == "join":
        ours, theirs = duckdb.sql(f"SELECT region, total, n FROM read_parquet({files})"), None
        for name in TABLES[what]:
            duckdb.sql(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM '{folder / name}/*.parquet'")
        theirs = duckdb.sql(JOIN)
        return sorted(ours.fetchall()) == sorted(theirs.fetchall())
    last, checksum = None, "SELECT count(*), sum(hash(key, payload)::HUGEINT) FROM"
    for file in files:
        keys = ds.dataset(file).to_table(columns=["key"])["key"].combine_chunks()
        if len(keys) and (
            (last is not None and keys[0].as_py() < last) or not pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py()
        ):
            return False
        last = keys[-1].as_py() if len(keys) else last
    sums = [
        duckdb.sql(f"{checksum} read_parquet({names})").fetchall() for names in (files, [f"{folder}/records/*.parquet"])
    ]
    return bool(sums[0] == sums[1])


def direct(folder: Path, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Statements by floodmark and by Sail directly, in turn on one server."""
    import psutil

    from floodmark.engines.embedded.bounded.query import query
    from floodmark.engines.embedded.sail.session import Sail

    sail, rows = Sail(), list[dict[str, Any]]()

    def cpu() -> float:
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        return sum(sum(each.cpu_times()[:2]) for each in processes)

    for what, text in DIRECT.items():
        tables = made_of(folder, ("records",) if what == "sort" else ("orders", "shops"))

        def by_sail(text: str = text, names: tuple[str, ...] = tuple(tables)) -> Any:
            with sail.lent() as connection:
                for name in names:
                    connection.spark.read.format("delta").load(str(folder / name)).createOrReplaceTempView(name)
                return connection.spark.sql(text).toArrow()

        def by_floodmark(text: str = text, tables: dict[str, Any] = tables) -> Any:
            return query(sail, text, tables)

        took: dict[str, list[float]] = {"floodmark": [], "sail": []}
        answers = {}
        for turn in range(asked.direct + 1):
            for name, ask in (("floodmark", by_floodmark), ("sail", by_sail)):
                before = cpu()
                answers[name] = ask()
                if turn:  # the first of each is left out
                    took[name].append(cpu() - before)
        least = {name: round(min(seconds), 2) for name, seconds in took.items()}
        counts = {name: answer.num_rows for name, answer in answers.items()}
        rows.append(
            {
                "what": what,
                **least,
                "share": round(least["sail"] / least["floodmark"], 2),
                "equal": len(set(counts.values())) == 1,
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    sail.close()
    return rows


def main() -> None:
    sys.path.insert(0, str(HERE))
    from contenders import environment, own_version
    from measurements import keep, process

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--orders", type=int, default=5_000_000)
    parser.add_argument("--shops", type=int, default=10_000)
    parser.add_argument("--only", type=lambda text: text.split(","), default=["sort", "join"])
    parser.add_argument("--direct", type=int, default=0)
    asked, rows = parser.parse_args(), list[dict[str, Any]]()
    if asked.direct:
        with TemporaryDirectory(prefix="floodmark-bench-") as place:
            for what in TABLES:
                make(Path(place), what, asked)
            rows = direct(Path(place), asked)
            keep("direct", rows, by=("what",))
        sys.exit(not all(row["equal"] for row in rows))
    with TemporaryDirectory(prefix="floodmark-bench-") as place:
        for what in asked.only:
            folder = Path(place, what)
            megabytes = round(make(folder, what, asked) / 1e6)
            for system, (_, does) in SYSTEMS.items():
                if what not in does:
                    continue
                out = Path(place, f"{what}-{system.replace(' ', '-')}")
                out.mkdir()
                python = environment("polars") if system == "polars" else sys.executable
                row: dict[str, Any] = {
                    "what": what,
                    "system": system,
                    "rows": asked.records if what == "sort" else asked.orders,
                    "MB": megabytes,
                }
                told = process([str(python), __file__, "--child", system, str(folder), what, str(out)])
                if "left out" not in told:
                    version = own_version(
                        {"floodmark sql (embedded)": "embedded", "polars": "polars"}.get(system, system.split(",")[0])
                    )
                    row |= {"version": version, **told, "equal": right(folder, what, out)}
                else:
                    row |= told
                rows.append(row)
                keep("relational", [row], by=("what", "system"))
                print(json.dumps(row), flush=True)
    sys.exit(any(not row.get("equal", True) for row in rows))


if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    if sys.argv[1:2] == ["--child"]:
        _, _, system, folder, what, out = sys.argv
        SYSTEMS[system][0](Path(folder), what, Path(out))
        print("{}")
    else:
        main()
