"""Keys to forget, and the journal of an unfinished forgetting, which does not contain the keys."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from floodmark.core.errors import LifecycleError


@dataclass(frozen=True, slots=True)
class ForgottenKey:
    """A column and the value whose rows are forgotten.

    Args:
        column: name of a column of a source's contract.
        value: the value as text, as in a CSV file.
        source: name of the source; empty for all sources that have the column.
    """

    column: str
    value: str
    source: str = ""

    @staticmethod
    def parse(text: str) -> ForgottenKey:
        """The key of a text ``COLUMN=VALUE`` or ``SOURCE.COLUMN=VALUE``.

        Raises:
            LifecycleError: LIFECYCLE-290, the text has another form.
        """
        name, equals, value = text.partition("=")
        source, _, column = name.rpartition(".")
        if not equals or not column.isidentifier() or not value or (source and not source.isidentifier()):
            fix = "Write it as floodmark forget customer_id=42, or with the source: floodmark forget orders.customer_id=42"
            raise LifecycleError("key to forget", "COLUMN=VALUE", "another text", fix, code="LIFECYCLE-290")
        return ForgottenKey(column, value, source)

    def __str__(self) -> str:
        return f"{self.source}.{self.column}" if self.source else self.column


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetJournal:
    """The journal of an unfinished forgetting. Its next run continues with the operators that are due.

    Args:
        salt: random text that the digest is taken with.
        digest: SHA-256 of salt and keys: the next run must be for the same keys. The journal is removed at the end.
        names: sources and columns of the keys.
        operators: operators whose results had the rows, upstream first.
        due: those of them whose results are still to be computed anew.
        saved: operator -> number of its savepoints before the first step.
        rows: log or quarantine -> number of its rows that had a key before the first step.
    """

    salt: str
    digest: str
    names: tuple[str, ...]
    operators: tuple[str, ...]
    due: tuple[str, ...]
    saved: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def begin(
        keys: Sequence[ForgottenKey], operators: Sequence[str], saved: dict[str, int], rows: dict[str, int]
    ) -> ForgetJournal:
        """The journal before the first step."""
        salt = secrets.token_hex(16)
        return ForgetJournal(
            salt=salt,
            digest=_digest(salt, keys),
            names=tuple(map(str, keys)),
            operators=tuple(operators),
            due=tuple(operators),
            saved=saved,
            rows=rows,
        )

    def check(self, keys: Sequence[ForgottenKey]) -> None:
        """Check that a run is for the keys of the journal.

        Raises:
            LifecycleError: LIFECYCLE-291, another forgetting is unfinished.
        """
        if _digest(self.salt, keys) != self.digest:
            names = " ".join(f"{name}=..." for name in self.names)
            fix = f"Finish that one first, with its own key, which is not recorded: floodmark forget {names}"
            got = f"one by {', '.join(self.names)} that was begun and stopped on the way"
            raise LifecycleError("forgetting", "no other unfinished forgetting", got, fix, code="LIFECYCLE-291")

    def done(self, operator: str) -> ForgetJournal:
        """The journal after an operator was computed anew."""
        return replace(self, due=tuple(name for name in self.due if name != operator))

    def as_json(self) -> str:
        """The text of the journal."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_json(text: bytes) -> ForgetJournal:
        """The journal of a text."""
        value = json.loads(text)
        return ForgetJournal(**value | {name: tuple(value[name]) for name in ("names", "operators", "due")})


def _digest(salt: str, keys: Sequence[ForgottenKey]) -> str:
    texts = sorted(f"{key}={key.value}" for key in keys)
    return hashlib.sha256("\n".join([salt, *texts]).encode()).hexdigest()
