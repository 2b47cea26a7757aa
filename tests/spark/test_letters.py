"""Names of columns with letters beyond ASCII go from a file to a result, alike on both engines and in both modes."""

# ruff: noqa: PLC2401 - names beyond ASCII are what is tested

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field
from stored import rows

from floodmark import Ascending, Contract, EventTime, Files, Source, Stream, Tumbling, operator
from floodmark import sum as total
from floodmark.control.processes.engine import Computing
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake


class Zahlung(Contract):
    zeit: EventTime
    Empfänger: str
    größe: int
    日付: str = Field(alias="日付 (day)")


@operator
def je_empfaenger(zahlungen: Stream[Zahlung]) -> Stream:
    """Sums of what is not small."""
    grown = zahlungen.filter("größe > 1").with_columns(größer="größe + 1")
    return grown.key_by("Empfänger").window(Tumbling("1 day")).aggregate(Größe=total("größer"), сумма=total("größe"))


@pytest.mark.engines("embedded", "spark")
@pytest.mark.parametrize(
    "mode", [pytest.param("bounded", marks=pytest.mark.engines("embedded", soak=("spark",))), "unbounded"]
)
def test_names_beyond_ascii(engine: Computing, lake: Lake, tmp_path: Path, mode: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    lines = ["zeit,Empfänger,größe,日付 (day)", *(f"2024-01-0{n}T00:00:00Z,Jörg,{n},一" for n in range(1, 5))]
    (folder / "a.csv").write_text("\n".join(lines), "utf-8")
    source = Source("zahlungen", contract=Zahlung, connector=Files(str(folder)), watermark=Ascending())
    assert engine.land(source, lake, end=True).quarantined == 0
    if mode == "bounded":
        engine.run_bounded(je_empfaenger, lake, Interval())
    else:
        engine.run_unbounded(je_empfaenger, lake, until_caught_up=True)
    written = rows(lake.output(je_empfaenger.outputs[0].table), "_event_time")
    results = [(r.Empfänger, r.Größe, r.сумма) for r in written if r._kind == 0]
    assert results == [("Jörg", n + 1, n) for n in (2, 3, 4)]
