"""The results of the comparison of Sail with Spark, stored in ``table.json``, which ``make parity`` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

FILE = Path(__file__).with_name("table.json")
Verdict = Literal["agrees", "rewritten", "close", "refused"]
VERDICTS: tuple[Verdict, ...] = ("agrees", "rewritten", "close", "refused")
"""Verdicts from equal to different. ``close``: floating numbers that are equal to 12 digits, but not to the last digit."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function or an operator, and the forms of arguments with which it was compared.

    Args:
        arguments: verdict -> forms of the arguments, such as ``bigint, int +``.
        examples: verdict -> (expression, Spark's value, Sail's value); for ``refused`` with two different values.
        differing: refused form -> such an example; a form for which Sail only has errors has none.
    """

    arguments: Mapping[Verdict, Sequence[str]]
    examples: Mapping[Verdict, tuple[str, str, str]]
    differing: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)

    def verdict(self, arguments: str) -> Verdict | None:
        """The verdict for arguments of a form; None if the form was not compared."""
        return next((verdict for verdict in VERDICTS if arguments in self.arguments.get(verdict, ())), None)


@dataclass(frozen=True, slots=True)
class Table:
    """The whole comparison.

    Args:
        spark: the version of PySpark.
        sail: the version of pysail.
        functions: by name.
    """

    spark: str
    sail: str
    functions: Mapping[str, Function]

    def verdict(self, exact: str, plain: str) -> Verdict | None:
        """The verdict for a pair of ``signatures.signatures``; None if neither signature was compared.

        Args:
            exact: signature with literal values.
            plain: signature with types alone, which is used if ``exact`` was not compared.
        """
        known = None
        for signature in (exact, plain):
            name, arguments = parted(signature)
            function = self.functions.get(name)
            known = known or (function.verdict(arguments) if function is not None else None)
        return known

    def example(self, signature: str) -> tuple[str, str, str] | None:
        """(expression, Spark's value, Sail's value) of a signature, with different values; None if Sail only has errors."""
        name, arguments = parted(signature)
        function = self.functions.get(name)
        return function.differing.get(arguments) if function is not None else None


def parted(signature: str) -> tuple[str, str]:
    """The name of a function, and the forms of its arguments."""
    cut = next((i for i, letter in enumerate(signature) if letter in " ("), len(signature))
    arguments = signature[cut + 1 :]
    return signature[:cut], arguments[:-1] if signature[cut : cut + 1] == "(" else arguments


@cache
def table() -> Table:
    """The comparison that belongs to this version of floodmark."""
    return read(FILE.read_text("utf-8"))


def read(text: str) -> Table:
    """A comparison parsed from its JSON."""
    document = json.loads(text)
    functions = {
        name: Function(
            entry["arguments"],
            {verdict: tuple(example) for verdict, example in entry["examples"].items()},
            {form: tuple(example) for form, example in entry["differing"].items()},
        )
        for name, entry in document["functions"].items()
    }
    return Table(document["spark"], document["sail"], functions)
