"""Expressions out of expressions on Sail: their values are those of their parts, computed one after the other and kept in between."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from parity import nested, probes, values
from parity.comparison import CHANCE
from parity.sail_side import column
from seeds import seed_of

from floodmark.core.errors import CapabilityError, ExecutionError
from floodmark.engines.embedded.memory.values import values as computed
from floodmark.engines.embedded.retries.halving import failing
from floodmark.semantics.kernels.attempts import Attempt
from floodmark.spec.expressions import expression
from floodmark.spec.values.schema import Schema

ROWS = 12
FAILS = "!"


def answers(text: str, schema: Schema, rows: pa.Table) -> tuple[list[str], pa.ChunkedArray | None]:
    """Row by row a value, or ``!`` where there is none; and the column, null there."""
    kind = expression(text, schema, "nested").type
    attempt = Attempt(step="nested", text=text, type=kind, schema=schema)

    def fails(start: int, stop: int) -> str | None:
        try:
            computed(rows.slice(start, stop - start), [attempt])
        except (CapabilityError, ExecutionError) as error:
            return error.got
        return None

    failed = {place for place, _ in failing(rows.num_rows, fails)}
    well = [place for place in range(rows.num_rows) if place not in failed]
    if not well:
        return [FAILS] * rows.num_rows, None
    (found,) = computed(rows.take(well), [attempt])
    places = {place: number for number, place in enumerate(well)}
    said = dict(zip(well, column(found), strict=True))
    whole = found.take(pa.array([places.get(place) for place in range(rows.num_rows)], pa.int64()))
    return [said.get(place, FAILS) for place in range(rows.num_rows)], whole


def composed(chance: random.Random, count: int) -> Iterator[tuple[str, str, str, str]]:
    """(expression, the name of a column in it, what stands there, both in one)."""
    texts = chance.sample([*probes.readable(probes.usual()), *probes.readable(probes.special())], 3000)
    texts = [text for text in texts if not any(varying in text.lower() for varying in CHANCE)]
    short = [text for text in texts if len(text) <= 60 and not nested.LEFT_OUT.search(text) and nested.passes(text)]
    by_type: dict[str, list[str]] = {}
    for text in short:
        by_type.setdefault(expression(text, values.SCHEMA, "nested").type, []).append(text)
    made = 0
    while made < count:
        outer = chance.choice(short)
        names = nested.COLUMN.findall(outer)
        choices = by_type.get(values.SCHEMA.types.get(names[0], ""), []) if names else []
        if not choices:
            continue
        inner = chance.choice(choices)
        whole = nested.COLUMN.sub(
            lambda match, inner=inner, names=names: f"({inner})" if match[0] == names[0] else match[0], outer
        )
        if nested.passes(whole):
            made += 1
            yield outer, names[0], inner, whole


@pytest.mark.parametrize("count", [4, pytest.param(1500, marks=pytest.mark.soak)])
def test_an_expression_is_what_its_parts_make_of_it(count: int) -> None:
    seed = seed_of("composed")
    chance, odd = random.Random(seed), values.tables()["two"]
    wrong = {}
    for outer, name, inner, whole in composed(chance, count):
        rows = odd.take(chance.sample(range(odd.num_rows), ROWS)).select(list(values.SCHEMA.names))
        parts, kept = answers(inner, values.SCHEMA, rows)
        well = [place for place, value in enumerate(parts) if value != FAILS]
        if kept is None:
            continue
        at = rows.column_names.index(name)
        stepwise, _ = answers(
            outer,
            values.SCHEMA,
            rows.set_column(at, rows.schema.field(at), kept.cast(rows.schema.field(at).type)).take(well),
        )
        at_once, _ = answers(whole, values.SCHEMA, rows.take(well))
        if stepwise != at_once:
            wrong[whole] = [pair for pair in zip(stepwise, at_once, strict=True) if pair[0] != pair[1]][:2]
    assert wrong == {}, f"FLOODMARK_SEEDS with seed {seed}"
