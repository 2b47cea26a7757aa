"""Errors of verbs, as the log of a task shows them."""

from __future__ import annotations

import json

from airflow.sdk.exceptions import AirflowException

USAGE = 2
"""Exit status of a command that is wrong as it is typed."""
WRITTEN_WRONG = ("DEFINITION-", "CAPABILITY-", "PLAN-", "USAGE")
"""Beginnings of the codes of errors that the same command will meet again, until somebody changes code, config or command."""


class VerbError(AirflowException):
    """A verb failed.

    Args:
        text: where, expected, got, fix.
        code: of the error, such as ``LIFECYCLE-006``; empty if the verb was killed, or died without a word.
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code

    @property
    def lasting(self) -> bool:
        """Whether another try can only fail in the same way."""
        return self.code.startswith(WRITTEN_WRONG)


def error_of(status: int, printed: str, said: str) -> VerbError:
    """(exit status, stdout, stderr) of a verb -> its error."""
    lines = printed.strip().splitlines()
    try:
        parts = json.loads(lines[-1])["error"] if lines else {}
    except (ValueError, KeyError, TypeError):
        parts = {}
    if not parts:
        return VerbError(f"floodmark ended with status {status}: {said[-2000:].strip() or 'it said nothing'}")
    names = [name for name in ("where", "expected", "got", "fix") if parts.get(name)]
    text = "\n".join([str(parts.get("code", "")), *(f"  {name}: {parts[name]}" for name in names)])
    return VerbError(text, str(parts.get("code", "")))
