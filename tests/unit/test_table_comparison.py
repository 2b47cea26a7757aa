"""Comparisons of tables, held against brute force over plain rows."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from floodmark.core.errors import LifecycleError
from floodmark.lifecycle.comparison import Comparison
from floodmark.observe.comparison.compare import How, compare
from floodmark.observe.comparison.sides import Side
from floodmark.spec.values.tolerance import Within

COLUMNS = pa.schema(
    [
        ("k", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("n", pa.int64()),
        ("f", pa.float64()),
        ("d", pa.decimal128(38, 2)),
        ("tags", pa.list_(pa.string())),
    ]
)
Row = dict[str, Any]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def table(folder: Path, name: str, rows: list[Row], *, append: bool = False) -> Side:
    path = str(folder / name)
    write_deltalake(path, pa.Table.from_pylist(rows, schema=COLUMNS), mode="append" if append else "overwrite")
    return Side.of(path, None, None)


def row(at: int, **changed: Any) -> Row:
    usual = {
        "k": f"k{at % 7}",
        "at": NOON + timedelta(hours=at),
        "n": at,
        "f": at / 3,
        "d": Decimal(at),
        "tags": [str(at)],
    }
    return usual | changed


def counted(found: Comparison) -> tuple[int, int, int, int, int]:
    counts = found.counts
    return counts.equal, counts.within, counts.different, counts.only_left, counts.only_right


def test_reordered_rows_in_other_files_are_the_same(tmp_path: Path) -> None:
    rows = [row(n) for n in range(500)]
    left = table(tmp_path, "left", rows)
    table(tmp_path, "right", rows[250:][::-1])
    right = table(tmp_path, "right", rows[:250], append=True)
    found = compare(left, right, How(grain=("k", "at")))
    assert counted(found) == (500, 0, 0, 0, 0)
    assert found.same
    assert [column.distance for column in found.columns] == [0.0] * 4


def test_one_wrong_value_in_a_hundred_thousand_rows_is_found_and_shown(tmp_path: Path) -> None:
    rows = [row(n) for n in range(100_000)]
    left = table(tmp_path, "left", rows)
    right = table(tmp_path, "right", [*rows[:777], row(777, n=-1), *rows[778:]])
    found = compare(left, right, How(grain=("k", "at")))
    assert counted(found) == (99_999, 0, 1, 0, 0)
    (sample,) = found.samples
    assert sample.left is not None and sample.right is not None
    assert (sample.left["n"], sample.right["n"], sample.left["at"]) == (777, -1, NOON + timedelta(hours=777))
    by_name = {column.name: column for column in found.columns}
    assert (by_name["n"].different, by_name["n"].top) == (1, ((777, -1, 1),))
    assert by_name["n"].shift == pytest.approx(-778 / 100_000)
    assert by_name["f"].different == 0


def test_a_difference_within_its_tolerance_counts_as_the_same_and_is_told(tmp_path: Path) -> None:
    left = table(tmp_path, "left", [row(n) for n in range(1, 101)])
    right = table(tmp_path, "right", [row(n, f=n / 3 * 1.001) for n in range(1, 101)])
    how = How(grain=("k", "at"))
    assert counted(compare(left, right, how)) == (0, 0, 100, 0, 0)
    found = compare(left, right, How(grain=("k", "at"), tolerances={"f": Within(relative=0.001)}))
    assert counted(found) == (0, 100, 0, 0, 0)
    assert found.same
    half = compare(left, right, How(grain=("k", "at"), tolerances={"f": Within(0.01665)}))
    assert counted(half) == (0, 49, 51, 0, 0)  # n / 3000 <= 0.01665


def test_odd_values_are_the_same_where_they_are(tmp_path: Path) -> None:
    nan, inf = float("nan"), float("inf")
    odd = [
        row(0, f=nan, n=2**63 - 1),
        row(1, f=inf, n=-(2**63)),
        row(2, f=None, n=None, d=None, tags=None),
        row(3, f=-0.0, d=Decimal("9" * 36 + ".99"), tags=[]),
        row(4, k=None),
        row(5, f=nan),
    ]
    left = table(tmp_path, "left", odd)
    changed = [*odd[:3], row(3, f=0.0, d=Decimal("9" * 36 + ".98"), tags=[]), odd[4], row(5, f=inf)]
    right = table(tmp_path, "right", changed)
    how = How(grain=("k", "at"), tolerances={"f": Within(1.0), "n": Within(relative=1.0)})
    assert counted(compare(left, left, how)) == (6, 0, 0, 0, 0)
    found = compare(left, right, how)
    assert counted(found) == (4, 0, 2, 0, 0)
    by_name = {column.name: column for column in found.columns}
    assert (by_name["f"].different, by_name["d"].different, by_name["n"].different) == (1, 1, 0)
    assert by_name["n"].left.least == -(2**63)


def test_rows_without_a_key_are_compared_as_a_whole(tmp_path: Path) -> None:
    left = table(tmp_path, "left", [row(1), row(1), row(2)])
    right = table(tmp_path, "right", [row(1), row(2), row(3)])
    found = compare(left, right, How())
    assert found.grain == ()
    assert counted(found) == (2, 0, 0, 1, 1)


def brute(left: list[Row], right: list[Row]) -> tuple[int, int, int, int]:
    """Equal, different, only left, only right: by key, the same rows first, the others as many as both have."""
    freeze = [Counter((r["k"], r["at"], r["n"], r["f"]) for r in side) for side in (left, right)]
    same = freeze[0] & freeze[1]
    rest = [side - same for side in freeze]
    keys = [Counter(key[:2] for key in side.elements()) for side in rest]
    paired = (keys[0] & keys[1]).total()
    return same.total(), paired, keys[0].total() - paired, keys[1].total() - paired


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.few(2)
def test_any_two_tables_differ_in_what_brute_force_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = Random(seed)
    monkeypatch.setattr("floodmark.observe.comparison.compare._SLICE_ROWS", random.choice([3, 20, 500]))

    def drawn(number: int) -> list[Row]:
        return [
            row(
                random.randrange(4),
                k=random.choice(["a", "b", None]),
                n=random.randrange(3),
                f=random.choice([0.5, 1.5]),
            )
            for _ in range(number)
        ]

    one, other = drawn(random.randrange(60)), drawn(60)
    left, right = table(tmp_path, "left", one), table(tmp_path, "right", other)
    found = compare(left, right, How(grain=("k", "at"), top=6))
    equal, different, only_left, only_right = brute(one, other)
    assert counted(found) == (equal, 0, different, only_left, only_right)
    assert (found.counts.left, found.counts.right) == (len(one), len(other))
    by_name = {column.name: column for column in found.columns}
    assert sum(pairs for *_, pairs in by_name["n"].top) == by_name["n"].different  # there are six of them at most


def test_distances_tell_a_shift_of_a_distribution_from_noise_in_its_order(tmp_path: Path) -> None:
    random = Random(1)
    values = [random.gauss(0, 1) for _ in range(20_000)]
    left = table(tmp_path, "left", [row(n, f=f, k="x" if n % 4 else "y") for n, f in enumerate(values)])
    random.shuffle(values)
    shuffled = table(tmp_path, "shuffled", [row(n, f=f) for n, f in enumerate(values)])
    moved = table(tmp_path, "moved", [row(n, f=f + 1) for n, f in enumerate(values)])
    how = How(grain=("at",))
    noise = {column.name: column for column in compare(left, shuffled, how).columns}["f"]
    shift = {column.name: column for column in compare(left, moved, how).columns}["f"]
    assert noise.different > 19_000
    assert noise.distance == pytest.approx(0, abs=0.001)
    assert shift.distance == pytest.approx(0.383, abs=0.02)  # 2 * Phi(1/2) - 1
    assert shift.shift == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize(
    ("how", "code", "told"),
    [
        (How(grain=("nobody",)), "LIFECYCLE-081", "nobody"),
        (How(grain=("k",), tolerances={"tags": Within(1)}), "LIFECYCLE-083", "array<string>"),
        (How(grain=("k",), tolerances={"m": Within(1)}), "LIFECYCLE-081", "'m'"),
        (How(grain=("k",), without=("m",)), "LIFECYCLE-081", "'m'"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_reason(tmp_path: Path, how: How, code: str, told: str) -> None:
    side = table(tmp_path, "left", [row(1)])
    with pytest.raises(LifecycleError) as error:
        compare(side, side, how)
    assert (error.value.code, told in error.value.got) == (code, True)


def test_columns_of_one_side_and_of_another_type_are_told_and_not_compared(tmp_path: Path) -> None:
    left = table(tmp_path, "left", [row(1)])
    path = str(tmp_path / "right")
    write_deltalake(path, pa.table({"k": ["k1"], "n": pa.array([1], pa.int32()), "more": [1.5]}))
    found = compare(left, Side.of(path, None, None), How(grain=("k",)))
    assert {(one.name, one.left, one.right) for one in found.schema} == {
        ("at", "timestamp", None),
        ("n", "bigint", "int"),
        ("f", "double", None),
        ("d", "decimal(38,2)", None),
        ("tags", "array<string>", None),
        ("more", None, "double"),
    }
    assert (found.counts.equal, found.same) == (1, False)


def test_versions_of_one_table_are_sides_and_one_that_is_not_there_is_refused(tmp_path: Path) -> None:
    table(tmp_path, "left", [row(1)])
    table(tmp_path, "left", [row(2)], append=True)
    path = str(tmp_path / "left")
    old, new = Side.of(path, None, None, 0), Side.of(path, None, None)
    assert counted(compare(old, new, How(grain=("at",)))) == (1, 0, 0, 0, 1)
    assert DeltaTable(path).version() == 1
    with pytest.raises(LifecycleError, match="LIFECYCLE-080"):
        Side.of(path, None, None, 9)


def test_columns_may_have_any_name(tmp_path: Path) -> None:
    names = ("key", "whole", "nth", "place", "slice", "l", "a0", "rows", "bucket", 'a "quoted" one', "group by")
    paths = [str(tmp_path / side) for side in ("left", "right")]
    for at, path in enumerate(paths):
        values = {name: [1, 2, 2, 3 + at] for name in names}
        write_deltalake(path, pa.table({"id": ["a", "b", "b", "c"], **values}))
    found = compare(*(Side.of(path, None, None) for path in paths), How(grain=("id",)))
    assert counted(found) == (3, 0, 1, 0, 0)
    assert {column.name: column.different for column in found.columns} == dict.fromkeys(names, 1)
