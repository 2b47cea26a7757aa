"""Secrets by reference: declarations name where a secret is, and hold no secret."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from floodmark.core.errors import ConnectorError, DefinitionError

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Env:
    """A secret by reference: an environment variable, read where and when the secret is used. Its value is in no package, record or log.

    Raises:
        DefinitionError: DEFINITION-298, no name of a variable.
    """

    name: str

    def __post_init__(self) -> None:
        """Refuse what cannot be a variable's name: likely the secret itself."""
        if not isinstance(self.name, str) or not _VARIABLE.fullmatch(self.name):
            got = "something else"  # perhaps a secret
            fix = 'For example Env("SLACK_URL").'
            raise DefinitionError("Env", "the name of an environment variable", got, fix, code="DEFINITION-298")


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A secret by reference: a file with nothing but the secret, as orchestrators mount them. Read again when a store refuses the secret.

    Raises:
        DefinitionError: DEFINITION-298, no absolute path.
    """

    path: str

    def __post_init__(self) -> None:
        """Refuse what cannot be a path: likely the secret itself."""
        if not isinstance(self.path, str) or not self.path.startswith("/") or "\n" in self.path:
            got = "something else"  # perhaps a secret
            fix = 'For example SecretFile("/run/secrets/lake_key").'
            raise DefinitionError("SecretFile", "the absolute path of a file", got, fix, code="DEFINITION-298")


Secret = Env | SecretFile


def read(secret: Secret) -> str:
    """The secret; empty if its variable or file is missing or empty."""
    if isinstance(secret, Env):
        return os.environ.get(secret.name, "")
    try:
        return Path(secret.path).read_text("utf-8").strip()
    except OSError:
        return ""


def digest_of(secrets: Iterable[object]) -> str:
    """A digest of what the files among some settings hold, which changes with any of them; empty without a file."""
    files = [read(held) for held in secrets if isinstance(held, SecretFile)]
    return hashlib.blake2b(repr(files).encode(), digest_size=16).hexdigest() if files else ""


def described(secret: Secret) -> str:
    """Where a secret is, for people."""
    return f"variable {secret.name}" if isinstance(secret, Env) else f"file {secret.path}"


def needed(secret: Secret, *, where: str, name: str, setting: str) -> str:
    """A secret without which a connector cannot connect.

    Args:
        secret: to read.
        where: for the error: of what source.
        name: for the error: what the secret is.
        setting: for the error: what names the secret.

    Raises:
        ConnectorError: CONNECTOR-235, its variable or file is missing or empty.
    """
    content = read(secret)
    if not content:
        fix = f"Set it where floodmark runs, also for its supervisor and Dagster; or correct {setting}."
        raise ConnectorError(
            f"{where}, {described(secret)}", f"the secret {name}", "nothing", fix, code="CONNECTOR-235"
        )
    return content
