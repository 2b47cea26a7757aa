"""The frame of an OVER: the rows around each row that its result is of."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from floodmark.core.time import span
from floodmark.spec.windowing.frames import ALL_ROWS, Frame, Unit
from floodmark.sql.refusals import unsayable
from floodmark.sql.text import Text
from floodmark.sql.windows import length

CURRENT_ROW = "CURRENT ROW"
_FIX = (
    "Write ROWS 10 PRECEDING, RANGE INTERVAL '1' HOUR PRECEDING, ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW; with EMIT CHANGES also "
    "ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING."
)


def ends_elsewhere(node: exp.Window) -> bool:
    """Whether the frame of an OVER ends with another row than its own."""
    spec = node.args.get("spec")
    return spec is not None and spec.args.get("end") not in {None, CURRENT_ROW}


def frame_of(text: Text, node: exp.Window, *, timed: bool) -> Frame:
    """The frame of an OVER; of rows in order of event time (``timed``) a RANGE is a duration, of others a number or a duration.

    Raises:
        DefinitionError: DEFINITION-382, a frame that no stream has; DEFINITION-386, a length that is no duration.
    """
    spec = node.args.get("spec")
    if spec is None:
        return Frame()
    kind, start, end = spec.args.get("kind"), spec.args.get("start"), spec.args.get("end")
    backwards = start == "UNBOUNDED" and spec.args.get("start_side") != "PRECEDING"
    refused = {
        "a frame without the row": spec.args.get("exclude"),
        f"{kind} as a frame": kind not in {"ROWS", "RANGE"},
        "a frame that begins behind all rows": backwards,
    }
    for what, is_so in refused.items():
        if is_so:
            raise unsayable(text, node, what, _FIX)
    bounds = _Bounds(text, node, timed=timed)
    unit, preceding = bounds.distance(start, "start_side", "PRECEDING") if start != "UNBOUNDED" else (bounds.unit, None)
    if end == "UNBOUNDED":
        return Frame("rows" if preceding is None else unit, preceding, ALL_ROWS)
    end_unit, following = bounds.distance(end or CURRENT_ROW, "end_side", "FOLLOWING")
    if preceding is not None and following < -preceding:
        raise unsayable(text, node, "a frame that ends before it begins", _FIX)
    if following and preceding and unit != end_unit:
        raise unsayable(text, node, "a frame of a number and a length of time", _FIX)
    return Frame(end_unit if following else unit, preceding, following)


class _Bounds:
    """The bounds of a frame.

    Args:
        text: of the statement.
        node: the OVER.
        timed: whether the order is that of event time.
    """

    def __init__(self, text: Text, node: exp.Window, *, timed: bool) -> None:
        self.text, self.node, self.timed = text, node, timed
        self.spec = node.args["spec"]
        self.unit: Unit = "rows" if self.spec.args.get("kind") == "ROWS" else "range"

    def distance(self, bound: Any, side: str, outwards: str) -> tuple[Unit, int]:
        """(a bound, the entry of its side, the side on which it is by its nature) -> its unit, and how far it is from the row; less than zero on the other side."""
        if bound == CURRENT_ROW:
            return self.unit, 0
        unit, far = self._length(bound)
        return unit, far if self.spec.args.get(side) == outwards else -far

    def _length(self, bound: Any) -> tuple[Unit, int]:
        number = int(bound.this) if isinstance(bound, exp.Literal) and bound.is_int else None
        if self.unit == "rows":
            if number is None:
                raise unsayable(self.text, self.node, "another number of rows than a whole one", _FIX)
            return "rows", number
        if number is not None and not self.timed:
            return "values", number
        return "range", span(length(self.text, bound), self.text.at(self.node))
