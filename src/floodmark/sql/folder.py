"""A folder of files of SQL, one operator each, which read each other by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from floodmark.core.errors import DefinitionError, closest
from floodmark.spec.assets.asset import OperatorAsset, SourceAsset
from floodmark.spec.graph.operator import Operator
from floodmark.spec.keyed.applied import signature_of
from floodmark.spec.rows.lookup import LookupTable
from floodmark.spec.rows.source import Source
from floodmark.spec.windowing.aggregates import Aggregate
from floodmark.sql.operator import Readable, sql_operator
from floodmark.sql.reading.header import Header, header_of


def sql_operators(folder: str | Path, *modules: ModuleType, **tables: Readable) -> ModuleType:
    """A module whose attributes are the operators of all ``.sql`` files of a folder, for ``Workspace.of(assets, models)``.

    A file holds one SELECT; FROM names sources, operators and other files. Comment lines before the statement are its settings,
    ``-- lateness: 2 hours``, and its description.

    Args:
        folder: of the files.
        modules: whose sources and operators the statements may read, and whose functions and aggregates they may call.
        tables: table of a statement -> what it is, as the ``inputs`` of ``sql_operator``.

    Raises:
        DefinitionError: DEFINITION-397 no folder, or one with neither a file of SQL nor other operators (``__init__.py``); DEFINITION-398 files that read each other in a circle; and those of
            ``sql_operator``.
    """
    path = Path(folder)
    files = sorted(path.glob("*.sql")) if path.is_dir() else []
    if not files and not (path / "__init__.py").is_file():
        fix = "Write a SELECT into a file of that folder, such as hourly.sql; or correct the folder's path: Path(__file__).parent."
        got = "no folder" if not path.is_dir() else "none"
        raise DefinitionError(
            f"sql_operators({str(folder)!r})", "a folder with files of SQL", got, fix, code="DEFINITION-397"
        )
    return _Folder(path, files, dict(_named(modules)) | tables, list(_callable(modules))).module()


class _Folder:
    """The files of a folder on their way to operators."""

    def __init__(self, path: Path, files: list[Path], tables: dict[str, Readable], functions: list[Any]) -> None:
        self.path, self.tables, self.functions = path, tables, functions
        self.texts: dict[str, tuple[Path, str, Header]] = {}
        for file in files:
            text = file.read_text("utf-8")
            header = header_of(text, str(file))
            name = str(header.settings.get("name", file.stem))
            if name in self.texts:
                fix = "Give one of them another name, in its header or by its file's name."
                got = f"'{name}' in {self.texts[name][0].name} too"
                raise DefinitionError(str(file), "a name of its own", got, fix, code="DEFINITION-397")
            self.texts[name] = (file, text, header)
        self.operators: dict[str, Operator] = {}
        self.begun: list[str] = []

    def module(self) -> ModuleType:
        """A module with an attribute per operator."""
        module = ModuleType(self.path.name or "operators", f"Operators of {self.path}.")
        for name in self.texts:
            setattr(module, name, self.operator(name))
        return module

    def operator(self, name: str) -> Operator:
        """The operator of a file, behind those that it reads."""
        if name in self.operators:
            return self.operators[name]
        file, text, header = self.texts[name]
        if name in self.begun:
            circle = " -> ".join([*self.begun[self.begun.index(name) :], name])
            fix = "An operator reads what is computed before it; take one of them out of the circle."
            raise DefinitionError(
                str(file), "files that read each other in an order", circle, fix, code="DEFINITION-398"
            )
        self.begun.append(name)
        inputs = {table: self._table(of, file) for table, of in header.inputs.items()}
        inputs |= {
            table: self._table(table, file)
            for table in self._read(text, file)
            if table not in inputs and self._known(table)
        }
        inputs |= {table: bound for table, bound in self.tables.items() if table not in inputs}
        settings = {key: value for key, value in header.settings.items() if key != "name"}
        settings |= {"description": header.description, "location": str(file), "functions": self.functions}
        operator = sql_operator(name, text, inputs=inputs, **settings)
        self.operators[name] = operator
        self.begun.pop()
        return operator

    def _read(self, text: str, file: Path) -> list[str]:
        from floodmark.sql.statement import tables_of  # noqa: PLC0415 - sqlglot is imported when the first statement is read
        from floodmark.sql.text import parsed  # noqa: PLC0415 - as above

        return [table.name for table in tables_of(parsed(text, str(file))[1])]

    def _known(self, table: str) -> bool:
        return table in self.tables or table in self.texts or table.split("__", maxsplit=1)[0] in self.texts

    def _table(self, table: str, file: Path) -> Any:
        if table in self.tables:
            return self.tables[table]
        name, _, output = table.partition("__")
        if name in self.texts:
            operator = self.operator(name)
            return operator[output] if output else operator
        known = [*self.tables, *self.texts]
        fix = f"{closest(table, known)}Tables: {', '.join(known)}."
        raise DefinitionError(str(file), "a source or an operator's output", f"'{table}'", fix, code="DEFINITION-394")


def _callable(modules: tuple[ModuleType, ...]) -> Iterator[Any]:
    """The marked functions of modules, and the classes of aggregates that they define."""
    for module in modules:
        for value in vars(module).values():
            own = isinstance(value, type) and issubclass(value, Aggregate) and value.__module__ == module.__name__
            if own or (callable(value) and signature_of(value) is not None):
                yield value


def _named(modules: tuple[ModuleType, ...]) -> Iterator[tuple[str, Readable]]:
    """(name of its table, definition) of every source and every output of an operator in modules."""
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, LookupTable):
                yield value.name, value
            elif isinstance(value, (Source, SourceAsset)):
                yield (value.source if isinstance(value, SourceAsset) else value).name, value
            elif isinstance(value, (Operator, OperatorAsset)):
                operator = value.operator if isinstance(value, OperatorAsset) else value
                for output in reversed(operator.outputs):
                    yield output.table, operator[output.name]
