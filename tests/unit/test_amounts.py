"""Amounts in every spelling are the number they were written from, or are not guessed."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter, ValidationError
from stored import rows

from floodmark import Amount, Ascending, Contract, Files, Source
from floodmark.cli.new.inference.amounts import Amounts, Currencies, amounts
from floodmark.core.errors import DefinitionError
from floodmark.engines.embedded.landing.run import land
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.landing import quarantine
from floodmark.lake.folder.paths import Lake
from floodmark.spec.rows.contract import schema

THOUSANDS = {
    ".": [",", " ", "\u00a0", "\u202f", "'", "\u2019", ""],
    ",": [".", " ", "\u00a0", "\u202f", "'", "\u2019", ""],
}
CURRENCIES = ["", "EUR", "\u20ac", "$", "US$", "R$", "CHF", "kr"]


def spelled(number: Decimal, decimal: str, thousands: str, currency: str, place: int) -> str:
    """A number as Python writes it with commas between thousands, with other signs."""
    text = f"{abs(number):,f}".replace(",", "T").replace(".", decimal).replace("T", thousands)
    before, after = (f"{currency} ", "") if place % 2 and currency else ("", f" {currency}" if currency else "")
    if number >= 0:
        return f"{before}{text}{after}"
    return [
        f"-{before}{text}{after}",
        f"{before}-{text}{after}",
        f"{before}{text}-{after}",
        f"({before}{text}{after})",
    ][place % 4]


numbers = st.decimals(min_value=-(10**9), max_value=10**9, places=2, allow_nan=False)
styles = st.sampled_from([(decimal, sign) for decimal, signs in THOUSANDS.items() for sign in signs])


@given(st.lists(numbers, min_size=1, max_size=9), styles, st.sampled_from(CURRENCIES), st.integers(0, 3))
def test_a_number_is_what_it_was_written_from(
    values: list[Decimal], style: tuple[str, str], currency: str, place: int
) -> None:
    decimal, thousands = style
    texts = [spelled(value, decimal, thousands, currency, place) for value in values]
    reader = Amount("," if decimal == "," else ".", currency=currency)
    assert [reader.parse(text) for text in texts] == values
    read = amounts(texts)
    assert isinstance(read, Amounts)
    assert (list(read.readings), read.currency, read.misfits) == ([decimal], currency, 0)
    precision, scale = read.readings[decimal]
    assert scale == 2
    assert all(len(str(abs(value)).replace(".", "")) <= precision for value in values)


@given(st.lists(st.integers(1, 999), min_size=1, max_size=9), st.sampled_from(",."))
def test_thousands_alone_have_two_readings(values: list[int], sign: str) -> None:
    read = amounts([f"{value}{sign}000" for value in values])
    assert isinstance(read, Amounts)
    assert sorted(read.readings) == [",", "."]
    assert read.example


@pytest.mark.parametrize(
    "texts",
    [
        ["10.1.2.3", "10.1.2.4"],
        ["301 123 456", "301 123 457"],
        ["1,2,3"],
        ["12.5%"],
        ["3-4"],
        ["12,34,5"],
        ["1.00.000"],
        ["--5"],
        ["(5"],
        ["-(5)"],
        ["$ 5 EUR"],
        ["5 KGX"],
        ["word"],
        ["01.02.2024"],
        ["1 2"],
    ],
)
def test_other_texts_are_no_amounts(texts: list[str]) -> None:
    assert amounts(texts) is None


def test_several_currencies_are_told() -> None:
    assert amounts(["5 EUR", "7 USD"]) == Currencies(("EUR", "USD"))


@pytest.mark.parametrize("text", ["5 USD", "1.00.0", "five", "1,5,0", "", "EUR", "1.5.2024"])
def test_an_amount_in_another_spelling_is_refused(text: str) -> None:
    adapter = TypeAdapter(Annotated[Decimal, Amount(",", currency="EUR")])
    with pytest.raises(ValidationError, match=r"Input should be an amount written as 1\.000,50 EUR"):
        adapter.validate_python(text)


def test_a_decimal_sign_is_a_comma_or_a_point() -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-200"):
        Amount(";")  # type: ignore[arg-type]  # what is refused


class Bill(Contract, event_time="ingestion"):
    paid: Annotated[Decimal, Field(max_digits=18, decimal_places=2), Amount(",", currency="EUR")] | None = None
    due: Annotated[Decimal, Amount(".")] = Field(max_digits=12, decimal_places=3)
    tax: float = 0


def no_sail() -> Sail:
    raise AssertionError("no server is needed")


def test_columns_of_different_spellings_land_in_one_file(lake: Lake, tmp_path: Path) -> None:
    assert schema(Bill).types == {"paid": "decimal(18,2)", "due": "decimal(12,3)", "tax": "double"}
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("paid;due;tax\n1.000,50 EUR;1,000.125;1.000,5\n;-3;2,5\n5 USD;1;0\n")
    (folder / "b.jsonl").write_text(json.dumps({"paid": "(1.234,00 EUR)", "due": 7, "tax": 1}) + "\n")
    connector = Files(str(folder), delimiter=";", decimal=",")
    source = Source("bills", contract=Bill, connector=connector, watermark=Ascending(), max_quarantine_share=1)
    land(no_sail, source, lake)
    stored = [(row.paid, row.due, row.tax) for row in rows(lake.log("bills"), "_sequence") if row._kind == 0]
    assert stored == [
        (Decimal("1000.50"), Decimal("1000.125"), 1000.5),
        (None, Decimal(-3), 2.5),
        (Decimal("-1234.00"), Decimal(7), 1.0),
    ]
    (entry,) = quarantine.show("bills", lake).newest
    assert entry.raw == "5 USD;1;0"
    assert entry.reason.startswith("paid: expected an amount written as 1.000,50 EUR, got '5 USD'")
