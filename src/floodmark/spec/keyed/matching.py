"""The functions of joins, deduplication and histories: window and process functions of floodmark's own."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from floodmark.core.fingerprint import canonical, form
from floodmark.core.time import from_ms, to_ms
from floodmark.core.types import is_same
from floodmark.spec.keyed.process import Context, Row, StatefulFunction
from floodmark.spec.keyed.state import ListState, ValueState
from floodmark.spec.keyed.timer import Timer
from floodmark.spec.rows.kinds import Kind
from floodmark.spec.values.functions import Pane
from floodmark.spec.values.schema import TAG

if TYPE_CHECKING:
    from floodmark.spec.graph.steps import Port

DELETED = "_deleted"

Places = tuple[tuple[tuple[str, str], ...], ...]
"""Per side, (column of its rows, column of the result)."""


def _sides(rows: Iterable[Row], ports: tuple[Port, ...]) -> list[list[dict[str, Any]]]:
    """(rows of a tagged union) -> per port its rows, in the columns of their own stream."""
    rows_by_port: list[list[dict[str, Any]]] = [[] for _ in ports]
    for row in rows:
        tag = row[TAG]
        rows_by_port[tag].append({own: row[column] for own, column in ports[tag].columns})
    return rows_by_port


class WindowJoin:
    """The rows of a window of two streams -> their pairs."""

    def __init__(self, kind: str, ports: tuple[Port, ...], places: Places) -> None:
        self.kind, self.ports, self.places = kind, ports, places

    def text(self) -> str:
        """The join's name and settings, in place of its code in fingerprints."""
        return canonical({"window_join": self.kind, "columns": self.places})

    def __call__(self, pane: Pane, rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
        """The pairs of a window."""
        left, right = _sides(rows, self.ports)
        if any(value is None for value in pane.key.values()):  # as in SQL, null is not equal to null
            yield from self._pairs(left, [])
            yield from self._pairs([], right)
        else:
            yield from self._pairs(left, right)

    def _pairs(self, left: Sequence[Row], right: Sequence[Row]) -> Iterator[dict[str, Any]]:
        to_left, to_right = self.places
        if self.kind in {"semi", "anti"}:
            yield from (_named(row, to_left) for row in left if bool(right) == (self.kind == "semi"))
            return
        lefts: list[Row | None] = [*left] or ([None] if self.kind in {"right", "full"} else [])
        rights: list[Row | None] = [*right] or ([None] if self.kind in {"left", "full"} else [])
        for left_row in lefts:
            for right_row in rights:
                if left_row is not None or right_row is not None:
                    yield _named(left_row, to_left) | _named(right_row, to_right)


class CoGroup:
    """Calls the user's function of ``co_group`` with the rows of both streams in a window."""

    def __init__(self, function: Callable[..., Iterable[Mapping[str, Any]]], ports: tuple[Port, ...]) -> None:
        self.function, self.ports = function, ports
        self.__name__ = getattr(function, "__name__", "co_group")

    def __call__(self, pane: Pane, rows: Sequence[Row]) -> Iterable[Mapping[str, Any]]:
        """The rows that the user's function yields for a window."""
        return self.function(pane, *_sides(rows, self.ports))


class TemporalJoin(StatefulFunction):
    """Joins rows with the version that was valid at their event time. Input is in order of event time, versions before rows of the same time."""

    versions = ListState(Kind("version"))

    def __init__(self, kind: str, lateness: int, valid_until: str | None, places: Places) -> None:
        self.kind, self.lateness, self.valid_until, self.places = kind, lateness, valid_until, places

    def canonical(self) -> dict[str, object]:
        """Name and settings; in place of its code in fingerprints."""
        about = {"kind": self.kind, "allowed_lateness": self.lateness, "valid_until": self.valid_until}
        return {"name": "temporal_join", **about, "columns": form(self.places), "states": self.layout()}

    def on_version(self, row: Row, ctx: Context) -> None:
        """Add a version; evict the versions before the newest one that rows of the allowed lateness may need."""
        versions = self.versions.get()
        insort(versions, (ctx.timestamp, dict(row)), key=lambda version: version[0])
        needed = bisect_right(versions, ctx.watermark - self.lateness, key=lambda version: version[0])
        self.versions.update(versions[max(needed - 1, 0) :])

    def on_row(self, row: Row, ctx: Context) -> Iterator[Row]:
        """Join a row with the newest version that is not newer than the row."""
        if ctx.timestamp + self.lateness <= ctx.watermark:
            ctx.drop()  # type: ignore[attr-defined]  # floodmark's own functions may
            return
        versions = self.versions.get()
        position = bisect_right(versions, ctx.timestamp, key=lambda version: version[0])
        known = position > 0 and all(
            value is not None for value in ctx.key.values()
        )  # as in SQL, null is not equal to null
        version = versions[position - 1][1] if known else None
        if version is not None and self.valid_until is not None:
            until = version.get(self.valid_until)
            version = version if until is None or ctx.timestamp < to_ms(until) else None
        if version is not None or self.kind == "left":
            yield _named(row, self.places[0]) | _named(version, self.places[1])


class TemporalJoinOfChanges(TemporalJoin):
    """As ``TemporalJoin``, of rows that may be taken back: what a row was joined with is taken back with it, whatever versions have come since.

    State is also each row that came, with what it was joined with, for ever; and retractions that came before their row.

    Source: Flink's materialised lookup join, ``table.optimizer.non-deterministic-update.strategy = TRY_RESOLVE``.
    """

    revises = True
    multiset = True
    joined = ListState(Kind("joined"))
    owed = ListState(Kind("owed"))

    def canonical(self) -> dict[str, object]:
        """Name and settings; in place of its code in fingerprints."""
        return {**super().canonical(), "name": "temporal_join_of_changes"}

    @property
    def takes_back(self) -> bool:
        """Always True."""
        return True

    def on_row(self, row: Row, ctx: Context) -> Iterator[Row]:
        """Join a row, and remember what it was joined with; nothing where it has been taken back already."""
        owed = self.owed.get()
        if _taken(owed, ctx.timestamp, row) is not None:
            self.owed.update(owed)
            return
        made = list(super().on_row(row, ctx))
        self.joined.append((ctx.timestamp, dict(row), made))
        yield from made

    def on_retract(self, row: Row, ctx: Context) -> None:
        """Take back what a row was joined with: that of its event time, else the last of its values."""
        joined = self.joined.get()
        match = _taken(joined, ctx.timestamp, row)
        if match is None:
            self.owed.append((ctx.timestamp, dict(row), []))
            return
        self.joined.update(joined)
        for made in match[2]:
            ctx.retract(made)  # type: ignore[attr-defined]  # floodmark's own functions may


def _taken(rows: list[Any], time: int, row: Row) -> Any:
    """Take an entry of the values of a row out of (event time, values, results): that of the time, else the last one; None if there is none."""
    places = [at for at in reversed(range(len(rows))) if _same(rows[at][1], row)]
    return rows.pop(min(places, key=lambda at: rows[at][0] != time)) if places else None


def _same(row: Row, other: Row) -> bool:
    """Whether rows have equal values; NaN is one."""
    return all(is_same(row[name], other[name]) for name in other)


class Deduplicate(StatefulFunction):
    """Drops rows of a key that are at most ``within`` before or after an emitted row of the key, by event time.

    The timer of an emitted row is its mark: it fires at the row's event time + ``within``. No row on time can be a duplicate from then on.
    """

    seen = ValueState(bool)
    over = Timer()

    def __init__(self, within: int) -> None:
        self.within = within

    def canonical(self) -> dict[str, object]:
        """Name and settings; in place of its code in fingerprints."""
        return {"name": "deduplicate", "settings": {"within": self.within}, "states": self.layout()}

    def on_element(self, row: Row, ctx: Context) -> Iterator[Row]:
        """Emit the row unless an emitted row is at most ``within`` apart."""
        marks = self.over.pending()
        first = bisect_left(marks, ctx.timestamp)
        if first == len(marks) or marks[first] - 2 * self.within > ctx.timestamp:
            self.seen.update(True)
            self.over.set(ctx.timestamp + self.within)
            yield row

    def on_timer(self, timer: str, ctx: Context) -> None:  # noqa: ARG002 - the protocol's
        """Free the key's state with its last mark."""
        if not self.over.pending():
            self.seen.clear()


class History(StatefulFunction):
    """The versions of a key, each valid from its row's event time until that of the next version. Input is in order of event time."""

    revises = True
    identity = ("valid_from",)
    current = ValueState(Kind("version"))

    def __init__(self, columns: tuple[str, ...], tracked: tuple[str, ...], sequence: str | None) -> None:
        self.columns, self.tracked, self.sequence = columns, tracked, sequence

    def canonical(self) -> dict[str, object]:
        """Name and settings; in place of its code in fingerprints."""
        about = {"columns": form(self.columns), "tracked": form(self.tracked)}
        about |= {} if self.sequence is None else {"sequence": self.sequence}
        return {"name": "scd2", "settings": about, "states": self.layout()}

    def on_element(self, row: Row, ctx: Context) -> Iterator[Row]:
        """Emit what the row changes among the versions of its key: of the rows of one instant, only the last one counts."""
        own: Any = ctx
        known: dict[str, Any] | None = self.current.get()
        if known is not None and ctx.timestamp < known["since"]:
            own.drop()
            return
        sequence = None if self.sequence is None else row[self.sequence]
        if known is not None and self._superseded(sequence, ctx.timestamp, known):
            return
        version = None if known is None else self._version(known)
        repeated = known is not None and known.get("at") == ctx.timestamp
        earlier = self._earlier(known, version) if known is not None and repeated else version
        now = None if row[DELETED] else {name: row[name] for name in self.columns}
        since = ctx.timestamp if earlier is None or not self._same(earlier, now) else earlier["since"]
        state = {"row": now or {name: row[name] for name in self.columns}, "since": since, "gone": now is None}
        self.current.update(state | {"at": ctx.timestamp, "sequence": sequence, "before": earlier})
        emitted = self._rows(earlier if repeated else None, version, ctx.timestamp)
        current = self._rows(earlier, None if now is None else {"row": now, "since": since}, ctx.timestamp)
        for row_before in emitted:
            if row_before not in current:
                own.retract(row_before)
        for row_now in current:
            if row_now not in emitted:
                yield row_now

    def _version(self, known: Mapping[str, Any]) -> dict[str, Any] | None:
        """State of a key -> its open version; None after a deletion. A state of older code may lack columns."""
        if known["gone"]:
            return None
        return {"row": {name: known["row"].get(name) for name in self.columns}, "since": known["since"]}

    def _earlier(self, known: Mapping[str, Any], version: dict[str, Any] | None) -> Any:
        """The version that was open before the instant of the key's last row; states of older code do not hold it."""
        if "before" not in known:
            return version if version is not None and version["since"] < known["at"] else None
        before: dict[str, Any] | None = known["before"]
        if before is None:
            return None
        return {"row": {name: before["row"].get(name) for name in self.columns}, "since": before["since"]}

    def _same(self, earlier: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> bool:
        """Whether a row leaves all tracked columns of the open version as they are."""
        return (
            earlier is not None and now is not None and all(earlier["row"][name] == now[name] for name in self.tracked)
        )

    @staticmethod
    def _rows(
        earlier: Mapping[str, Any] | None, version: Mapping[str, Any] | None, instant: int
    ) -> list[dict[str, Any]]:
        """(version before the instant, open version since then) -> rows of the output; a version that goes on is one row."""
        rows = []
        if earlier is not None and (version is None or version["since"] != earlier["since"]):
            rows.append({**earlier["row"], "valid_from": from_ms(earlier["since"]), "valid_to": from_ms(instant)})
        if version is not None:
            rows.append({**version["row"], "valid_from": from_ms(version["since"]), "valid_to": None})
        return rows

    def _superseded(self, sequence: Any, timestamp: int, known: Mapping[str, Any]) -> bool:
        """Whether a row of the same instant with a greater ``sequence`` was processed before this row."""
        last = known.get("sequence")
        if self.sequence is None or last is None or known.get("at") != timestamp:
            return False
        return sequence is None or bool(sequence < last)


def _named(row: Row | None, places: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    return {target: None if row is None else row.get(name) for name, target in places}
