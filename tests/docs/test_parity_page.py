"""docs/parity.md is what the comparison in the package says."""

from __future__ import annotations

from floodmark.engines.embedded.parity.table import Function, Table, table

from .features_page import ROOT
from .parity_page import compact, page


def test_the_page_is_current() -> None:
    found = page(table())
    assert (ROOT / "docs" / "parity.md").read_text("utf-8") == found, (
        "run: python tests/docs/parity_page.py > docs/parity.md"
    )


def test_a_function_has_a_row_per_verdict_with_both_values() -> None:
    left = Function(
        {"agrees": ["string, int +"], "refused": ["string, int -"]}, {"refused": ("left('ab', -1)", "''", "'a'")}
    )
    rows = page(Table("4", "0", {"left": left})).splitlines()
    assert "Of 2 forms of arguments: 1 let through, 0 rewritten, 0 to 12 digits, 1 refused." in "\n".join(rows)
    assert rows[-1] == "| `left` | string, int - | refused | `left('ab', -1)` | `''` | `'a'` |"


def test_forms_that_differ_in_one_argument_are_joined() -> None:
    assert compact(["int, string", "bigint, string", "int, date", "bigint, date"]) == "int/bigint, string/date"
    assert compact(["int", "int, int"]) == "int; int, int"
