"""Nexmark's queries as statements: those that can be said answer as DuckDB does, bounded and unbounded; the others are refused with the reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from nexmark import QUERIES, SIDE_INPUT, SIZES, TABLES, rows
from sql_tables import entries_of, oracle, plain

from floodmark import Contract, LookupTable, sql_operator, sql_operators
from floodmark.core.time import END
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import MARKER
from floodmark.testing.proof import prove, tables_of

PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text("utf-8")


def operators(query: str, folder: Path) -> list[Operator]:
    """The operators of a query, those that are read first."""
    for number, sql in enumerate(QUERIES[query][0]):
        head = "" if sql.lstrip().startswith("--") else f"-- name: {query}\n"
        (folder / f"{number}.sql").write_text(head + "\n".join(line.strip() for line in sql.splitlines()), "utf-8")
    models = vars(sql_operators(folder, **TABLES))  # type: ignore[arg-type]
    built = {value.name: value for value in models.values() if isinstance(value, Operator)}
    return [built[name] for name in (query,) if name in built]


def answers(chain: list[Operator], data: dict[str, list[dict[str, Any]]]) -> Counter[tuple[Any, ...]]:
    """The rows of the last operator of a chain, bounded."""
    tables: dict[str, Any] = {}
    for operator in chain:
        sources = [read.name for read in operator.inputs if read.upstream is None]
        entries = [entry for entry in entries_of(operator, data) if entry[0] in sources] if sources else []
        read = tables_of(operator, entries, dict.fromkeys((i.name for i in operator.inputs), END)) if sources else {}
        read |= {i.name: tables[i.table] for i in operator.inputs if i.upstream is not None}
        tables[operator.name] = MemoryRun(operator).batch(read)[""]
    counts = Counter[tuple[Any, ...]]()
    names = chain[-1].outputs[0].schema.names
    for row in tables[chain[-1].name].to_pylist():
        if row["_kind"] != MARKER:
            counts[plain([[row[name] for name in names]])[0]] += 1 if row["_kind"] == 0 else -1
    return +counts


@pytest.mark.feature("Q3")
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.few(8)
def test_a_query_of_nexmark_answers_as_duckdb_does_in_both_modes(tmp_path: Path, query: str) -> None:
    data, chain = rows(), operators(query, tmp_path)
    tables = {name: [dict(row) | {"number": n} for n, row in enumerate(table)] for name, table in data.items()}
    expected = Counter(plain(oracle(QUERIES[query][1], tables)))
    assert answers(chain, data) == expected
    assert sum(expected.values()) == SIZES.get(query, sum(expected.values())) > 0
    if len(chain) == 1:
        proof = prove(chain[0], entries_of(chain[0], data), cuts=2)
        assert proof.seed is None, proof.differences


class SideInput(Contract, key=("key",)):
    """The table beside the bids."""

    key: int
    value: str


@pytest.mark.feature("J4", "Q3")
def test_the_query_with_a_table_that_is_no_source_looks_in_its_current_rows(tmp_path: Path) -> None:
    path, data = tmp_path / "side_input.csv", rows()
    side = [{"key": key, "value": f"value {key}"} for key in range(0, 100, 2)]
    path.write_text("key,value\n" + "".join(f"{row['key']},{row['value']}\n" for row in side), "utf-8")
    table = LookupTable("side_input", contract=SideInput, path=path)
    operator = sql_operator("q13", SIDE_INPUT, inputs={"bid": TABLES["bid"], "side_input": table})
    question = "SELECT auction, bidder, price, value FROM bid JOIN side_input ON auction % 100 = key"
    expected = Counter(plain(oracle(question, {"bid": data["bid"], "side_input": side})))
    assert answers([operator], data) == expected
    assert expected
    proof = prove(operator, entries_of(operator, data), cuts=2)
    assert proof.seed is None, proof.differences


def test_the_page_says_which_queries_run_and_which_are_refused() -> None:
    table = {
        line.split("|")[1].strip(): line.split("|")[2].strip() for line in PAGE.splitlines() if line.startswith("| q")
    }
    assert {query for query, how in table.items() if how.startswith("runs")} == {*QUERIES, "q12", "q13"}
    assert not [query for query, how in table.items() if how.startswith("refused")]
