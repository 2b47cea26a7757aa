"""Checks that any connector passes: each row once, whatever is killed, in whatever portions rows come, also odd and broken ones.

A connector is checked from both sides: ``Input`` is who writes where the connector reads. With pytest::

    class Orders(connectors.Input):
        def connector(self): return SqliteTable(self.database, "orders")
        def add(self, rows): ...

    @pytest.mark.parametrize("check", connectors.CHECKS, ids=lambda check: check.__name__)
    def test_orders(check, tmp_path): check(Orders, tmp_path)

Each check makes as many inputs as it needs, each with an empty folder of its own, and lands them on the embedded engine; the other
engine reads by the same readers. A check that fails raises AssertionError with what was expected and what has landed.
"""

from __future__ import annotations

import os
import pickle
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark import cloudpickle

from floodmark.connectors.entries import Columns, JsonTexts
from floodmark.connectors.unit import Reader, Unit
from floodmark.core import crash
from floodmark.core.errors import ConnectorError
from floodmark.engines.embedded.landing import run as embedded
from floodmark.engines.landing.session import LandingResult
from floodmark.lake.folder.paths import Lake
from floodmark.spec.rows.connector import Connector
from floodmark.spec.rows.contract import Contract, EventTime
from floodmark.spec.rows.source import BoundedOutOfOrderness, Source

BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
KILLED_AT = ("landing.before_log", "landing.after_log", "landing.after_quarantine", "landing.before_log:2")
"""Where a landing is killed: beside each write of a commit, and once units of an earlier commit are there."""
MANY = 5_000
"""Rows of the check of a large input."""
_FEW, _BROKEN = 25, 3


class Row(Contract):
    """What every input is given to write."""

    at: EventTime
    number: int
    text: str | None


class Input(ABC):
    """Where a connector reads from, as those see it who write there.

    Args:
        folder: empty, of this input alone.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def connector(self) -> Connector:
        """The connector, with small units, so that a few rows are several."""
        ...

    @abstractmethod
    def add(self, rows: Sequence[Row]) -> None:
        """Write some rows, which the connector may read once this returns."""
        ...

    def add_broken(self, count: int) -> None:
        """Write rows that do not keep the contract, such as ones whose ``number`` is none.

        An input that cannot hold such rows leaves this as it is.
        """
        raise NotImplementedError

    def remove(self) -> None:
        """Remove what the connector reads from: the folder, the table, the topic. One that cannot be removed leaves this as it is."""
        raise NotImplementedError


Make = Callable[[Path], Input]
"""Makes an input in an empty folder."""


def each_row_lands_once(make: Make, folder: Path) -> None:
    """In portions, with a landing behind each; a landing that finds nothing commits nothing."""
    input_, lake, rows = _made(make, folder), folder / "lake", list[Row]()
    for portion in (1, 7, 30):
        added = _rows(len(rows), portion)
        input_.add(added)
        rows += added
        _land(input_, lake)
        _same(_landed(lake), rows)
    assert _land(input_, lake).commits == 0, "a landing that finds nothing new has committed"


def nothing_is_there_yet(make: Make, folder: Path) -> None:
    """An input without rows lands nothing, and what comes then."""
    input_, lake = _made(make, folder), folder / "lake"
    assert _land(input_, lake).rows == 0
    rows = _rows(0, 3)
    input_.add(rows)
    _land(input_, lake)
    _same(_landed(lake), rows)


def portions_change_nothing(make: Make, folder: Path) -> None:
    """All at once or in portions, the same rows land."""
    rows = _rows(0, 60)
    for name, size in (("whole", 60), ("portions", 13)):
        input_ = _made(make, folder / name)
        for begin in range(0, len(rows), size):
            input_.add(rows[begin : begin + size])
            _land(input_, folder / name / "lake")
        _same(_landed(folder / name / "lake"), rows)


def two_readers_disturb_nobody(make: Make, folder: Path) -> None:
    """Two lakes land the same input, one of them later: both have all rows."""
    input_, rows = _made(make, folder), _rows(0, 40)
    input_.add(rows[:20])
    _land(input_, folder / "first")
    input_.add(rows[20:])
    _land(input_, folder / "second")
    _land(input_, folder / "first")
    for lake in ("first", "second"):
        _same(_landed(folder / lake), rows)


def a_unit_is_the_same_whenever_it_is_read(make: Make, folder: Path) -> None:
    """Also by a reader that was pickled, and once more rows have come."""
    input_ = _made(make, folder)
    input_.add(_rows(0, _FEW))
    reader = _source(input_).connector.reader(_source(input_))
    reader.check_there()
    units = _pending(reader, input_.connector())
    assert units, "no unit is pending though rows were added"
    assert len({unit.name for unit in units}) == len(units), f"units of one name: {[unit.name for unit in units]}"
    before = [_read(reader, unit) for unit in units]
    input_.add(_rows(_FEW, _FEW))
    assert [_read(_pickled(reader), unit) for unit in units] == before, "a unit has other rows when it is read again"
    assert sum(map(len, before)) == _FEW, f"{sum(map(len, before))} rows in the units, of {_FEW}"


def odd_values_come_in_as_they_are(make: Make, folder: Path) -> None:
    """Bounds of whole numbers, texts that formats care about, instants before 1970 and within a millisecond."""
    input_, lake = _made(make, folder), folder / "lake"
    texts = [None, "a,b", 'say "yes"', "two\nlines", "größer 漢字 🌊", "NULL", "0x", " spaces "]
    numbers = [0, -1, 2**63 - 1, -(2**63), 2**53 + 1, 7, 8, 9]
    times = [
        BEGIN,
        BEGIN + timedelta(microseconds=1),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(1900, 1, 1, tzinfo=UTC),
        datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC),
        BEGIN,
        BEGIN,
        BEGIN,
    ]
    rows = [Row(at=at, number=number, text=text) for at, number, text in zip(times, numbers, texts, strict=True)]
    input_.add(rows)
    _land(input_, lake)
    _same(_landed(lake), rows)


def broken_rows_are_set_aside(make: Make, folder: Path) -> None:
    """With a reason, and the good ones land."""
    input_, lake, rows = _made(make, folder), folder / "lake", _rows(0, 20)
    input_.add(rows[:10])
    try:
        input_.add_broken(_BROKEN)
    except NotImplementedError:
        return
    input_.add(rows[10:])
    _land(input_, lake)
    _same(_landed(lake), rows)
    quarantine = DeltaTable(Lake(str(lake)).quarantine("rows")).to_pyarrow_table().to_pylist()
    assert len(quarantine) == _BROKEN, f"{len(quarantine)} rows in the quarantine, of {_BROKEN}"
    assert all(row["reason"] for row in quarantine), "a row in the quarantine has no reason"


def killed_beside_any_write_it_ends_exactly_right(make: Make, folder: Path) -> None:
    """A landing in a process of its own is killed by SIGKILL, rows come in, the next one goes on."""
    input_, lake, rows, killed = _made(make, folder), folder / "lake", list[Row](), 0
    for point in KILLED_AT:
        added = _rows(len(rows), 20)
        input_.add(added)
        rows += added
        killed += _killed(input_, lake, point)
    _land(input_, lake)
    _same(_landed(lake), rows)
    assert killed, "no landing came to a point where it is killed"


def many_rows_land(make: Make, folder: Path) -> None:
    """Thousands, at once."""
    input_, lake, rows = _made(make, folder), folder / "lake", _rows(0, MANY)
    input_.add(rows)
    _land(input_, lake)
    _same(_landed(lake), rows)


def what_is_not_there_is_refused(make: Make, folder: Path) -> None:
    """Before a landing begins, with an error for people; nothing is written."""
    input_, lake = _made(make, folder), folder / "lake"
    try:
        input_.remove()
    except NotImplementedError:
        return
    try:
        _land(input_, lake)
    except ConnectorError as error:
        assert error.fix, "the error does not say what to do"
    else:
        raise AssertionError("what is not there was landed")
    assert not DeltaTable.is_deltatable(Lake(str(lake)).log("rows")), "a log was made for what is not there"


CHECKS = (
    each_row_lands_once,
    nothing_is_there_yet,
    portions_change_nothing,
    two_readers_disturb_nobody,
    a_unit_is_the_same_whenever_it_is_read,
    odd_values_come_in_as_they_are,
    broken_rows_are_set_aside,
    killed_beside_any_write_it_ends_exactly_right,
    many_rows_land,
    what_is_not_there_is_refused,
)
"""All of them."""


def _made(make: Make, folder: Path) -> Input:
    where = folder / "input"
    where.mkdir(parents=True)
    return make(where)


def _rows(first: int, count: int) -> list[Row]:
    return [
        Row(at=BEGIN + timedelta(seconds=number * 7919 % 86_400), number=number, text=f"row {number}")
        for number in range(first, first + count)
    ]


def _source(input_: Input) -> Source:
    return Source(
        "rows",
        contract=Row,
        connector=input_.connector(),
        watermark=BoundedOutOfOrderness("1 day"),
        files_per_commit=2,
        max_quarantine_share=1,
    )


def _land(input_: Input, lake: Path) -> LandingResult:
    return embedded.land(_no_sail, _source(input_), Lake(str(lake)))


def _no_sail() -> Any:
    raise AssertionError("Sail was asked for, though the source has no predicate")


def _landed(lake: Path) -> Counter[tuple[datetime, int, str | None]]:
    """The rows of the log, without markers."""
    table = DeltaTable(Lake(str(lake)).log("rows")).to_pyarrow_table().to_pylist()
    return Counter((row["at"], row["number"], row["text"]) for row in table if row["_kind"] == 0)


def _same(landed: Counter[tuple[datetime, int, str | None]], rows: Sequence[Row]) -> None:
    wanted = Counter((row.at, row.number, row.text) for row in rows)
    missing, surplus = [*(wanted - landed).elements()], [*(landed - wanted).elements()]
    assert not missing and not surplus, (
        f"{len(missing)} of {len(rows)} rows have not landed, {len(surplus)} more than were added have; "
        f"not landed: {missing[:3]}; too much: {surplus[:3]}"
    )


def _pending(reader: Reader, connector: Connector) -> list[Unit]:
    """All units: a reader with positions may tell only the next ones."""
    units, positions = list[Unit](), dict[str, str]()
    while True:
        look = reader.pending({}, positions)
        reached = {
            **look.begun,
            **{connector.partition_of(unit.name): unit.position for unit in look.units if unit.position},
        }
        units += look.units
        if not reached.items() - positions.items():
            return units
        positions |= reached


def _pickled(reader: Reader) -> Reader:
    """As it comes out in a worker."""
    again: Reader = cloudpickle.loads(cloudpickle.dumps(reader))  # type: ignore[no-untyped-call]  # has no types
    return again


def _read(reader: Reader, unit: Unit) -> list[Any]:
    """What a unit holds, row by row."""
    rows = list[Any]()
    for entry in reader.open(unit).records():
        rows += (
            [record.value for record in entry.records()] if isinstance(entry, Columns | JsonTexts) else [entry.value]
        )
    return rows


def _killed(input_: Input, lake: Path, point: str) -> bool:
    """Land in a process of its own that is killed at a point; whether it came there."""
    module = sys.modules[type(input_).__module__]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # has no types
    try:
        pickled = cloudpickle.dumps((_source(input_), str(lake), point))  # type: ignore[no-untyped-call]  # has no types
    finally:
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]  # has no types
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            pool.submit(_land_to_death, pickled).result()
        except BrokenProcessPool:
            return True
    return False


def _land_to_death(pickled: bytes) -> None:
    source, lake, os.environ[crash.VARIABLE] = pickle.loads(pickled)  # noqa: S301 - of the process above
    embedded.land(_no_sail, source, Lake(lake))
