"""Lookup tables: tables outside of the lake whose current rows a stream is joined with."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import PurePath
from typing import Any, Literal

from attrs import field, frozen

from floodmark.core.errors import DefinitionError, shown
from floodmark.core.time import span
from floodmark.spec.rows.checks import is_contract
from floodmark.spec.rows.contract import Contract
from floodmark.spec.rows.contract import schema as contract_schema
from floodmark.spec.rows.source import check_name
from floodmark.spec.values.schema import Schema

VERSION = "lookup_version"
"""Column of the version of the table that a row has been looked up in."""
FILES = (".csv", ".parquet", ".json", ".jsonl")
"""Ends of the names of files that are lookup tables."""


@frozen(init=False)
class LookupTable:
    """A table that another program changes in its own time: a Delta table, or one file.

    It is no input: its rows do not land, and no change of it makes a result. A row is joined with the rows that the table has when that row is
    processed (``Stream.lookup``; in SQL ``JOIN t FOR SYSTEM_TIME AS OF PROCTIME()``). What it found, and the table's version, are recorded in the lake before the micro-batch that
    uses them, so that restarts, rebuilds, bounded runs and forks find the same.

    Args:
        name: of the table in statements.
        contract: its columns; further columns of the table are passed over.
        path: absolute, or a URI: the folder of a Delta table, or a file whose name ends with .csv, .parquet, .json or .jsonl (a JSON object per line).
        holds: event time for which an answer about a key holds: rows of one key within it find the same, and one answer is recorded for them.

    Raises:
        DefinitionError: DEFINITION-470, no contract, a relative path, or a time that is not longer than zero.

    Source: Flink's processing-time temporal join (lookup join).
    """

    name: str
    contract: type[Contract]
    path: str
    holds: int = field()

    def __init__(
        self, name: str, *, contract: type[Contract], path: str | PurePath, holds: str | timedelta = "1 second"
    ) -> None:
        where = f"lookup table '{name}'"
        check_name(name, where)
        length = span(holds, f"{where}, holds")
        wrong = "" if is_contract(contract) else f"contract={shown(contract)}"
        text = str(path)
        if "://" not in text and not PurePath(text).is_absolute():
            wrong = wrong or f"path={text!r}"
        wrong = wrong or (f"holds={holds!r}" if length <= 0 else "")
        if wrong:
            fix = 'For example LookupTable("rates", contract=Rate, path=Path(__file__).parent / "rates.csv").'
            expected = "a contract, an absolute path or a URI, and a time longer than zero"
            raise DefinitionError(where, expected, wrong, fix, code="DEFINITION-470")
        self.__attrs_init__(name, contract, text, length)

    @property
    def schema(self) -> Schema:
        """Its columns."""
        return contract_schema(self.contract)


class Lookup:
    """The question of a step about a lookup table: the rows whose columns equal values of the row. ``lake.stream.lookups`` answers it.

    Args:
        table: that is asked.
        keys: columns of the table, in the order of the columns of the row that they equal.
        columns: (column of the table, column of the answer).
        kind: ``"left"``: a row of nulls where the table has none.
    """

    def __init__(
        self,
        table: LookupTable,
        keys: tuple[str, ...],
        columns: tuple[tuple[str, str], ...],
        kind: Literal["inner", "left"],
    ) -> None:
        self.table, self.keys, self.columns, self.kind = table, keys, columns, kind
        self.__name__ = f"lookup in {table.name}"

    def __call__(self, row: Mapping[str, Any]) -> Any:
        """The engines have it."""
        raise NotImplementedError
