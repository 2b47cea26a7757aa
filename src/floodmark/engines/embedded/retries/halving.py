"""Search for the rows that fail by themselves, by computing halves of all rows."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

Failing = Callable[[int, int], str | None]
"""(first row, row after the last) -> why computing these rows fails; None if it does not fail."""


def failing(size: int, fails: Failing) -> Iterator[tuple[int, str]]:
    """(row, why it fails) of each row that fails by itself, in order.

    For one such row at most 2 log2(size) pieces are computed, with 3 * size rows in total.

    Args:
        size: number of rows.
        fails: computes some of the rows.
    """
    yield from _within(0, size, fails, sure=False) if size else ()


def _within(start: int, stop: int, fails: Failing, *, sure: bool) -> Generator[tuple[int, str], None, bool]:
    """The failing rows of a piece, as of ``failing``; returns whether the piece fails. ``sure``: the piece is known to fail."""
    alone = stop - start == 1
    why = fails(start, stop) if alone or not sure else None
    if why is None and (alone or not sure):
        return False
    if alone:
        yield start, why or ""
        return True
    half = (start + stop) // 2
    left = yield from _within(start, half, fails, sure=False)
    right = yield from _within(half, stop, fails, sure=not left)
    return left or right
