"""What joins, deduplication and histories do with the rows they are given: functions of floodmark's own, in the shape of a user's."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from floodmark.core.fingerprint import canonical, form
from floodmark.core.time import NEVER, from_ms, to_ms
from floodmark.spec.functions import Pane
from floodmark.spec.kinds import Kind
from floodmark.spec.process import Context, Row, StatefulFunction
from floodmark.spec.state import ListState, ValueState
from floodmark.spec.timer import Timer

if TYPE_CHECKING:
    from floodmark.spec.steps import Port

TAG, DELETED = "_input", "_deleted"

Places = tuple[tuple[tuple[str, str], ...], ...]
"""Per side, (column of its rows, column of the result)."""


def _sides(rows: Iterable[Row], ports: tuple[Port, ...]) -> list[list[dict[str, Any]]]:
    """Rows of a tagged union, back in the columns of their own stream."""
    found: list[list[dict[str, Any]]] = [[] for _ in ports]
    for row in rows:
        tag = row[TAG]
        found[tag].append({own: row[column] for own, column in ports[tag].columns})
    return found


class WindowJoin:
    """The rows of a window of two streams -> their pairs."""

    def __init__(self, kind: str, ports: tuple[Port, ...], places: Places) -> None:
        self.kind, self.ports, self.places = kind, ports, places

    def text(self) -> str:
        """Its name and settings, which stand for its code."""
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
        for one in lefts:
            for other in rights:
                if one is not None or other is not None:
                    yield _named(one, to_left) | _named(other, to_right)


class CoGroup:
    """A function of the user's over the rows of a window of two streams."""

    def __init__(self, function: Callable[..., Iterable[Mapping[str, Any]]], ports: tuple[Port, ...]) -> None:
        self.function, self.ports = function, ports
        self.__name__ = getattr(function, "__name__", "co_group")

    def __call__(self, pane: Pane, rows: Sequence[Row]) -> Iterable[Mapping[str, Any]]:
        """What it makes of a window."""
        return self.function(pane, *_sides(rows, self.ports))


class TemporalJoin(StatefulFunction):
    """Rows with the version that was valid at their time. They come by event time, versions first."""

    versions = ListState(Kind("version"))

    def __init__(self, kind: str, lateness: int, valid_until: str | None, places: Places) -> None:
        self.kind, self.lateness, self.valid_until, self.places = kind, lateness, valid_until, places

    def canonical(self) -> dict[str, object]:
        """By its name, instead of its code."""
        about = {"kind": self.kind, "allowed_lateness": self.lateness, "valid_until": self.valid_until}
        return {"name": "temporal_join", **about, "columns": form(self.places), "states": self.layout()}

    def on_version(self, row: Row, ctx: Context) -> None:
        """A version: it is kept until a younger one is old enough."""
        found = self.versions.get()
        insort(found, (ctx.timestamp, dict(row)), key=lambda version: version[0])
        needed = bisect_right(found, ctx.watermark - self.lateness, key=lambda version: version[0])
        self.versions.update(found[max(needed - 1, 0) :])

    def on_row(self, row: Row, ctx: Context) -> Iterator[Row]:
        """A row: its version is the youngest that is not younger than it."""
        if ctx.timestamp + self.lateness <= ctx.watermark:
            ctx.drop()  # type: ignore[attr-defined]  # floodmark's own functions may
            return
        found = self.versions.get()
        place = bisect_right(found, ctx.timestamp, key=lambda version: version[0])
        known = place > 0 and all(
            value is not None for value in ctx.key.values()
        )  # as in SQL, null is not equal to null
        version = found[place - 1][1] if known else None
        if version is not None and self.valid_until is not None:
            until = version.get(self.valid_until)
            version = version if until is None or ctx.timestamp < to_ms(until) else None
        if version is not None or self.kind == "left":
            yield _named(row, self.places[0]) | _named(version, self.places[1])


class Deduplicate(StatefulFunction):
    """The first row of a key; those that follow it within a while are passed over."""

    seen = ValueState(bool)
    over = Timer()

    def __init__(self, within: int) -> None:
        self.within = within

    def canonical(self) -> dict[str, object]:
        """By its name, instead of its code."""
        return {"name": "deduplicate", "settings": {"within": self.within}, "states": self.layout()}

    def on_element(self, row: Row, ctx: Context) -> Iterator[Row]:
        """A row."""
        if not self.seen.exists():
            self.seen.update(True)
            self.over.set(ctx.timestamp + self.within)
            yield row

    def on_timer(self, timer: str, ctx: Context) -> None:  # noqa: ARG002 - the protocol's
        """The next one is a first one again."""
        self.seen.clear()


class History(StatefulFunction):
    """The versions of a key: each is valid from its row's event time until the next one's. They come by event time."""

    revises = True
    identity = ("valid_from",)
    current = ValueState(Kind("version"))

    def __init__(self, columns: tuple[str, ...], tracked: tuple[str, ...], sequence: str | None) -> None:
        self.columns, self.tracked, self.sequence = columns, tracked, sequence

    def canonical(self) -> dict[str, object]:
        """By its name, instead of its code."""
        about = {"columns": form(self.columns), "tracked": form(self.tracked)}
        about |= {} if self.sequence is None else {"sequence": self.sequence}
        return {"name": "scd2", "settings": about, "states": self.layout()}

    def on_element(self, row: Row, ctx: Context) -> Iterator[Row]:
        """A row: the end of the version before it, and the begin of one unless it says that the key is gone."""
        own: Any = ctx
        known: dict[str, Any] | None = self.current.get()
        begun = None
        if known is not None and not known["gone"]:
            begun = {
                name: known["row"].get(name) for name in self.columns
            }  # an older version may not have read all of them
        since = NEVER if known is None else known["since"]
        if ctx.timestamp < since:
            own.drop()
            return
        place = None if self.sequence is None else row[self.sequence]
        if known is not None and self._superseded(place, ctx.timestamp, known):
            return
        now = {name: row[name] for name in self.columns}
        gone = bool(row[DELETED])
        same = begun is not None and not gone and all(begun[name] == now[name] for name in self.tracked)
        start = since if same else ctx.timestamp
        self.current.update({"row": now, "since": start, "gone": gone, "at": ctx.timestamp, "sequence": place})
        if same and begun == now:
            return
        moment = from_ms(ctx.timestamp)
        from_start = since == ctx.timestamp or same
        if begun is not None:
            valid_from = from_ms(since)
            own.retract({**begun, "valid_from": valid_from, "valid_to": None})
            if not from_start:
                yield {**begun, "valid_from": valid_from, "valid_to": moment}
        if not gone:
            yield {**now, "valid_from": from_ms(start), "valid_to": None}

    def _superseded(self, place: Any, timestamp: int, known: Mapping[str, Any]) -> bool:
        """Whether another row of the same instant comes after this one, and was here already."""
        last = known.get("sequence")
        if self.sequence is None or last is None or known.get("at") != timestamp:
            return False
        return place is None or bool(place < last)


def _named(row: Row | None, places: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    return {target: None if row is None else row.get(name) for name, target in places}
