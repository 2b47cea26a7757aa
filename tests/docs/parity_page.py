"""Write docs/parity.md from the comparison that is part of the package.

python tests/docs/parity_page.py > docs/parity.md
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence

from floodmark.engines.embedded.parity.table import VERDICTS, Table, table

HEAD = """\
# What the embedded engine computes

The embedded engine runs on Sail, which reads Spark SQL and is not Spark. Each function and operator of an expression was compared on
both, over odd values: nulls, NaN, infinities, the largest and smallest numbers, decimals of 38 digits, the years 1 to 9999, text outside
ASCII. An operator that uses a function with arguments for which the two differ, or which were not compared, is refused on the embedded
engine with CAPABILITY-031; it runs with `--engine spark`.

- *let through*: both gave the same value, or both an error, each time.
- *rewritten*: Sail is asked in other words, and then gives Spark's values. So whole numbers that overflow are an error, not another number.
- *to 12 digits*: floating numbers that may differ in their last digits. So may those of every function that a mathematical library computes,
  such as `tan`. They may be written to an output and be computed with; a sum or a difference of them is Spark's to 12 digits of its larger part. What tells numbers apart by
  their last digits is refused for them, in later steps too: a comparison, `floor`, `round`, `%`, a cast to a whole number or a text, a hash, a key.
- *refused*: at least one value differs; the example is one of them.

`int +`, `int 0` and `int -` are numbers written out, `string 'x'` and `string ''` texts written out, `pattern` a regular expression of
the kinds both read alike, `format yyyy` a part of a format of times, `x -> boolean` a lambda with one parameter and a boolean result. `decimal` has up to 18 digits, `decimal(38)` more. In
arithmetic `decimal(38)` is a decimal whose result needs more than 38 digits, which Spark rounds or refuses. `...` stands for any number of
arguments of these types. A column that Spark casts by itself, such as a
bigint in `length(n)`, stands under the type it is cast to: the cast is written out before Sail is asked, and counts like any other cast.
Aggregates are those of the bounded path in SQL; a window with another aggregate is computed without SQL.

This page is written from the comparison: `make parity` makes it, `python tests/docs/parity_page.py > docs/parity.md` writes the page.
`python -m parity FOLDER NAME...` in `tests/support` compares some functions anew, and leaves the rest of the table as it is.
"""
_WORDS = {"agrees": "let through", "rewritten": "rewritten", "close": "to 12 digits", "refused": "refused"}
_FEWEST = 4
"""Factors are joined where there are more forms than these."""


def page(found: Table) -> str:
    """The whole page."""
    counts = Counter(dict.fromkeys(VERDICTS, 0))
    for function in found.functions.values():
        counts.update({verdict: len(forms) for verdict, forms in function.arguments.items()})
    told = ", ".join(f"{counts[verdict]:,} {_WORDS[verdict]}" for verdict in VERDICTS)
    lines = [
        HEAD,
        f"Compared: PySpark {found.spark} and pysail {found.sail}. Of {sum(counts.values()):,} forms of arguments: {told}.\n",
    ]
    lines += ["| function | arguments | | example | Spark | Sail |", "|---|---|---|---|---|---|"]
    for name, function in found.functions.items():
        for verdict in VERDICTS:
            if forms := function.arguments.get(verdict):
                example = function.examples.get(verdict, ("", "", ""))
                cells = [_code(name), _cell(compact(forms)), _WORDS[verdict], *(_code(part) for part in example)]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def compact(forms: Iterable[str]) -> str:
    """Forms of arguments, those that differ in one argument joined: ``int/bigint, string``."""
    products = [tuple((part,) for part in form.split(", ")) for form in forms]
    for place in range(max(map(len, products), default=0)):
        products = _joined(products, place)
    return "; ".join(", ".join("/".join(part) for part in product) for product in products)


def _joined(products: Sequence[tuple[tuple[str, ...], ...]], place: int) -> list[tuple[tuple[str, ...], ...]]:
    groups: dict[tuple[object, ...], list[str]] = {}
    for product in products:
        rest = (*product[:place], None, *product[place + 1 :]) if place < len(product) else (*product, "whole")
        groups.setdefault(rest, []).extend(product[place] if place < len(product) else ())
    return [
        tuple(tuple(parts) if part is None else part for part in rest if part != "whole")  # type: ignore[misc]
        for rest, parts in groups.items()
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _code(text: str) -> str:
    if not text:
        return ""
    marks = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{marks}{pad}{text.replace('|', chr(92) + '|').replace(chr(10), ' ')}{pad}{marks}"


if __name__ == "__main__":
    sys.stdout.write(page(table()))
