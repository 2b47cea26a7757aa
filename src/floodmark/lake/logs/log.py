"""The landing log of a source: its landing commits, and the check that a source definition still fits the log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from floodmark.core.errors import PlanError, StateError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import read, write
from floodmark.lake.table import entries, history
from floodmark.lake.table.commits import Landing, decode, encode
from floodmark.lake.table.outputs import PROPERTIES
from floodmark.spec.graph.operator import Operator
from floodmark.spec.rows.source import Source
from floodmark.spec.values.schema import STAMPS

_INDEXED = 32
"""Columns for which Delta collects statistics by default. The stamps come last and need statistics most."""


def properties(source: Source) -> dict[str, str]:
    """Delta table properties for a new log of a source."""
    columns = len(source.schema.columns) + len(STAMPS)
    return {
        **PROPERTIES,
        "floodmark.granularity": source.granularity,
        "floodmark.source": source.fingerprint,
        **({"delta.dataSkippingNumIndexedCols": str(columns)} if columns > _INDEXED else {}),
    }


def landings(path: str, *, after: int = -1) -> Iterator[Landing]:
    """The landing commits of a log with an ordinal above ``after``, newest first. Older commits are not read. No JVM.

    Raises:
        StateError: STATE-010, the entries of some of these landing commits were removed.
    """
    lowest = None
    for commit in history.every(path):
        if isinstance(commit.record, Landing):
            if commit.record.ordinal <= after:
                return
            lowest = commit.record.ordinal
            yield commit.record
    _check_complete(path, lowest=lowest, after=after)


def newest(path: str) -> Landing | None:
    """The last landing commit of a log; None before the first.

    Raises:
        StateError: STATE-010, the commit's entry was removed, and the copy stored by ``remember`` is missing or outdated.
    """
    try:
        return next(landings(path), None)
    except StateError:
        landing = remembered(path)
        if landing is None:
            raise
        return landing


def remembered(path: str) -> Landing | None:
    """The landing commit stored by ``remember``; None if none is stored, or if a later landing commit exists."""
    content = read(_file(path))
    landing = None if content is None else decode(content.decode(), f"file {_file(path)}")
    if not isinstance(landing, Landing):
        return None
    return landing if entries.transaction_of(path, application(landing.source)) == landing.ordinal else None


def remember(path: str, landing: Landing) -> None:
    """Store the last landing commit of a log beside the log. A clean-up by another program may remove its entry while nothing lands."""
    content = encode(landing).encode()
    if landing.ordinal >= 0 and read(_file(path)) != content:
        write(_file(path), content)


def application(source: str) -> str:
    """Application id of the transactions that land a source."""
    return f"land/{source}"


def _file(path: str) -> str:
    return entries.beside(path, "landing.json")


def _check_complete(path: str, *, lowest: int | None, after: int) -> None:
    if (lowest is None or lowest > after + 1) and not history.complete(path):
        fix = "Restore its _delta_log from a backup, or land into a new log: give the source a new name."
        got = "none, as its entry is gone"
        raise StateError(f"log {path}", f"the metadata of landing commit {after + 1}", got, fix, code="STATE-010")


def check_fits(source: Source, definition: dict[str, object] | None) -> bool:
    """Check that a source definition fits the definition its log was landed with.

    Args:
        source: the current definition.
        definition: canonical form of the definition in the last landing commit; None before the first.

    Returns:
        True if nullable columns were added; False if nothing relevant changed.

    Raises:
        PlanError: PLAN-010, the definitions differ in a way that the log cannot follow.
    """
    if definition is None or definition == source.canonical():
        return False
    now = source.canonical()
    old_columns = {c["name"]: c for c in definition["schema"]}  # type: ignore[attr-defined]  # JSON of Schema.canonical
    new_columns = {c["name"]: c for c in now["schema"]}
    differences = [f"column '{name}' was removed" for name in old_columns if name not in new_columns]
    added = False
    for name, column in new_columns.items():
        old = old_columns.get(name)
        if old is None:
            added = True
            if not column["nullable"]:
                differences.append(
                    f"column '{name}' was added and may not be null, but the rows landed so far have none"
                )
        elif old["type"] != column["type"]:
            differences.append(f"column '{name}' was {old['type']} and is {column['type']}")
        elif old["nullable"] and not column["nullable"]:
            differences.append(f"column '{name}' may no longer be null, but landed rows may hold nulls")
    if _may_learn(definition["watermark"], now["watermark"]):
        definition = {**definition, "watermark": now["watermark"]}
    differences += [
        f"{key} was {_describe(definition.get(key))} and is {_describe(now.get(key))}"
        for key in ("event_time", "watermark", "granularity", "partition_by", "read")
        if json.dumps(definition.get(key), sort_keys=True) != json.dumps(now.get(key), sort_keys=True)
    ]
    if differences:
        required = [name for name, column in new_columns.items() if name not in old_columns and not column["nullable"]]
        fix = (
            "What is in a log stays as it was landed. Undo the change, or give the source a new name: it then lands all its "
            "input again, under the new rules, into a log of its own. Only the bound of Learned(...) may change."
        )
        if required:
            fix += f" {_optional(required)}"
        raise PlanError(
            f"source '{source.name}'", "what its log was landed with", "; ".join(differences), fix, code="PLAN-010"
        )
    return added


def check_log_fits(source: Source, lake: Lake) -> Landing | None:
    """``check_fits`` with the log that a lake has of a source; a lake without one, and a log without rows, fit.

    Returns:
        The last landing commit of the log; None before the first.

    Raises:
        PlanError: PLAN-010, the definitions differ in a way that the log cannot follow.
    """
    path = lake.log(source.name)
    last = newest(path) if entries.is_table(path) else None
    if last is not None:
        check_fits(source, last.definition)
    return last


def check_required(operator: Operator, lake: Lake) -> None:
    """Check that the landed rows of an operator's logs have all fields that its contracts require.

    Raises:
        PlanError: PLAN-010, a field was added that may not be null, but landed rows have none.
    """
    for input_ in operator.inputs if lake.is_local else ():
        path = lake.input(input_)
        last = newest(path) if input_.upstream is None and entries.is_table(path) else None
        if last is None or last.definition is None:
            continue
        landed = {column["name"] for column in last.definition["schema"]}
        required = [c.name for c in input_.schema.columns if not c.nullable and c.name not in landed]
        if required:
            fix = f"{_optional(required)} Or give the source a new name: it then lands all its input again, into a log of its own."
            raise PlanError(
                f"input '{input_.name}' of {operator.version}",
                f"fields that the rows of '{input_.table}' have",
                f"{', '.join(required)}, which may not be null, and was added after they landed",
                fix,
                code="PLAN-010",
            )


def _optional(names: Sequence[str]) -> str:
    return (
        f"A new field may come if it is optional, as it is null in landed rows: {', '.join(names)}: ... | None = None."
    )


def bound_of(definition: dict[str, object] | None) -> int | None:
    """The out-of-orderness bound of a stored source definition, ms; None without a definition."""
    return None if definition is None else int(definition["watermark"]["bound"])  # type: ignore[index]  # JSON of Source.canonical


def _may_learn(was: object, now: object) -> bool:
    """True if the watermark strategy may change: the settings of ``Learned`` may change, and a fixed bound may become ``Learned``."""
    strategies = [value["strategy"] for value in (was, now) if isinstance(value, dict)]
    return strategies[-1:] == ["Learned"] and strategies[0] in {"Learned", "BoundedOutOfOrderness", "Ascending"}


def _describe(value: object) -> str:
    if isinstance(value, dict):
        settings = ", ".join(f"{key} {setting}" for key, setting in value.items() if key != "strategy")
        return f"{value['strategy']}({settings})"
    return str(value)
