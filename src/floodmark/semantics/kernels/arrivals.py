"""Rows of key groups in the order in which a kernel that goes row by row processes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.semantics.encoding.columns import python_values
from floodmark.semantics.kernels.elements import ElementStage, ProcessStage


class Arrivals:
    """Rows of one key group or of several, those of each group in the order in which they are processed.

    A column is made Python values once, when it is first asked for, whichever rows it is asked for.

    Args:
        stage: that processes them.
        table: the rows.
        places: sequence or effective time of each.
    """

    def __init__(self, stage: ElementStage | ProcessStage, table: pa.Table, places: Sequence[int]) -> None:
        self.stage, self.table, self.places = stage, table, places

    @cached_property
    def keys(self) -> list[tuple[Any, ...]]:
        """The key of each row."""
        columns = [plain_keys(self.table[key]) for key in self.stage.keys]
        return list(zip(*columns, strict=True)) if columns else [()] * self.table.num_rows

    @cached_property
    def values(self) -> list[tuple[Any, ...]]:
        """The values of each row that the stage asks for."""
        columns = [python_values(self.table[f"v{i}"]) for i in range(len(self.stage.values))]
        return list(zip(*columns, strict=True)) if columns else [()] * self.table.num_rows

    @cached_property
    def rows(self) -> list[Any]:
        """Each row as a whole; None where the stage sees none."""
        return python_values(self.table["row"]) if "row" in self.table.column_names else [None] * self.table.num_rows

    @cached_property
    def times(self) -> list[int]:
        """Event times."""
        return self.table["t"].to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def stamps(self) -> list[int]:
        """Stamps."""
        return self.table["w"].to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def kinds(self) -> list[int]:
        """Kinds."""
        return self.table["kind"].to_pylist()  # type: ignore[no-any-return]


def divided(rows: pa.Table, *, by_time: bool) -> tuple[pa.Table, dict[int, tuple[int, int]]]:
    """Rows sorted by key group, those of each in order of arrival unless they are sorted later; key group -> the first of its rows, and the one after its last."""
    order = [("group", "ascending"), *([] if by_time else [("s", "ascending")])]
    rows = rows.take(pc.sort_indices(rows, order))
    numbers = rows["group"].to_numpy()
    bounds = np.flatnonzero(np.r_[True, numbers[1:] != numbers[:-1], True]).tolist()
    spans = {int(numbers[start]): (start, stop) for start, stop in pairwise(bounds)}
    return rows.drop_columns(["group"]), spans


def plain_keys(values: pa.ChunkedArray) -> list[Any]:
    """Values of a key column, with a single NaN object."""
    key_values: list[Any] = python_values(values)
    if pa.types.is_floating(values.type):
        key_values = [math.nan if v is not None and math.isnan(v) else v for v in key_values]
    return key_values
