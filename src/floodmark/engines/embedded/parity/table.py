"""What the comparison of Sail with Spark has found, as it is kept in ``table.json``; ``make parity`` writes the file anew."""

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
"""From alike to different. ``close``: floating numbers that are alike to twelve digits, not to the last one."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function or an operator, and the arguments it was compared with.

    Args:
        arguments: verdict -> forms of the arguments, such as ``bigint, int +``.
        examples: verdict -> (expression, Spark's value, Sail's value); of a refusal one in which the two differ.
        differing: refused form -> such an example; forms for which Sail has nothing but errors have none.
    """

    arguments: Mapping[Verdict, Sequence[str]]
    examples: Mapping[Verdict, tuple[str, str, str]]
    differing: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)

    def verdict(self, arguments: str) -> Verdict | None:
        """What was found for arguments of a form; None if they were not compared."""
        return next((verdict for verdict in VERDICTS if arguments in self.arguments.get(verdict, ())), None)


@dataclass(frozen=True, slots=True)
class Table:
    """The whole comparison.

    Args:
        spark: the version of PySpark it was made with.
        sail: the version of pysail.
        functions: by name.
    """

    spark: str
    sail: str
    functions: Mapping[str, Function]

    def verdict(self, exact: str, plain: str) -> Verdict | None:
        """What was found for one of ``signatures.signatures``; None if it was not compared.

        Args:
            exact: with what is known of arguments that are written out.
            plain: with types alone, which counts where there is no ``exact``.
        """
        known = None
        for signature in (exact, plain):
            name, arguments = parted(signature)
            function = self.functions.get(name)
            known = known or (function.verdict(arguments) if function is not None else None)
        return known

    def example(self, signature: str) -> tuple[str, str, str] | None:
        """An expression in which Sail's value is another than Spark's, with both; None if Sail has nothing but errors."""
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
    """A comparison out of its JSON."""
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
