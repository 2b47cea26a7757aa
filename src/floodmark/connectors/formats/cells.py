"""Texts of a row as values: which of them mean null, decimal commas, allowed values that are no text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from floodmark.connectors.judging.validation import kinds_of, texts_of_literals
from floodmark.spec.rows.contract import Contract, has_annotation, inputs_of
from floodmark.spec.values.amounts import Amount

DEFAULT_MISSING = ("NA",)
"""Texts that mean null in fields that hold no text, where ``Files`` does not say which do."""
_TEXTS = {"string", "binary"}
"""Types of fields that hold text."""
_COMMA_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,3}(?:[.][0-9]{3})+|[0-9]+)(?:,[0-9]+)?")
"""A number with a decimal comma, perhaps with points between its thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """How to read the texts of a row.

    Args:
        contract: the class whose fields are read.
        null_values: texts that mean null.
        missing_values: texts that mean null in fields that hold no text; None for the default.
        decimal: sign between whole and fraction of numbers.
    """

    contract: type[Contract]
    null_values: tuple[str, ...]
    missing_values: tuple[str, ...] | None = ()
    decimal: str = "."

    @property
    def missing(self) -> tuple[str, ...]:
        """Texts that mean null in fields that hold no text."""
        if self.missing_values is None:
            return DEFAULT_MISSING if self.null_values == ("",) else ()
        return self.missing_values

    def as_json(self) -> dict[str, object]:
        """The settings that are needed to read one row again."""
        return {
            "null_values": list(self.null_values),
            "missing_values": list(self.missing),
            "decimal": self.decimal,
        }

    @staticmethod
    def from_json(contract: type[Contract], value: dict[str, object]) -> Cells:
        """The inverse of ``as_json``."""
        return Cells(
            contract=contract,
            null_values=tuple(value["null_values"]),  # type: ignore[arg-type]  # a list of texts
            missing_values=tuple(value.get("missing_values", ())),  # type: ignore[arg-type]  # likewise
            decimal=str(value.get("decimal", ".")),
        )

    def reader(self, default_nulls: Counter[str] | None = None) -> Callable[[dict[str, object]], dict[str, object]]:
        """A function that replaces the texts of a row by what they mean.

        Args:
            default_nulls: counter of field and text that are read as null by default.
        """
        kinds, literals = kinds_of(self.contract), texts_of_literals(self.contract)
        everywhere = frozenset(self.null_values)
        missing = frozenset(self.missing) - everywhere
        without_text = frozenset(name for name, kind in kinds.items() if kind not in _TEXTS)
        own = {name for name, field in inputs_of(self.contract).items() if has_annotation(field, Amount)}
        fractions = {name for name, kind in kinds.items() if kind.startswith(("double", "decimal"))} - own
        fractions = fractions if self.decimal == "," else set()
        counted = default_nulls if self.missing_values is None else None

        def read(values: dict[str, object]) -> dict[str, object]:
            if not everywhere.isdisjoint(values.values()):
                values.update((name, None) for name, text in values.items() if text in everywhere)
            if not missing.isdisjoint(values.values()):
                for name in without_text & values.keys():
                    if (text := values[name]) in missing:
                        values[name] = None
                        if counted is not None:
                            counted[f"{name} '{text}'"] += 1
            for name in literals.keys() & values.keys():
                values[name] = literals[name].get(str(values[name]), values[name])
            for name in fractions & values.keys():
                values[name] = _with_point(values[name])
            return values

        return read


def _with_point(value: object) -> object:
    """A number with a decimal comma as a number with a point; any other value unchanged."""
    text = value.strip() if isinstance(value, str) else ""
    return text.replace(".", "").replace(",", ".") if _COMMA_NUMBER.fullmatch(text) else value
