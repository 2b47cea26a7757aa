"""Databases by URL: a URL of SQLAlchemy's without a password, or a reference to one. Frozen, without I/O."""

from __future__ import annotations

import re

from floodmark.core.errors import DefinitionError
from floodmark.spec.values.secret import Env, Secret, SecretFile

_URL = re.compile(r"(?P<dialect>[A-Za-z0-9_]+)(\+[A-Za-z0-9_]+)?://(?P<authority>[^/]*)(/.*)?", re.DOTALL)
_WITH_PASSWORD = re.compile(r"[^@]*:[^@]+@")


def dialect_of(url: str | Secret, password: Secret | None, where: str) -> str:
    """The dialect that a URL names; empty where the URL is a reference.

    Args:
        url: ``"postgresql+psycopg://reader@db/shop"``, ``Env("SHOP_URL")``.
        password: where it is, if the URL has none.
        where: of an error.

    Raises:
        DefinitionError: DEFINITION-338, neither a URL nor a reference; 339, a password that is no reference; 298, one that is written out in the URL.
    """
    match = _URL.fullmatch(url) if isinstance(url, str) else None
    if match is None and not isinstance(url, Env | SecretFile):
        expected = '"dialect+driver://user@host/database", or where one is: Env(...) or SecretFile(...)'
        got = "something else"  # perhaps a secret
        raise DefinitionError(f"{where}, url", expected, got, "Correct url.", code="DEFINITION-338")
    if password is not None and not isinstance(password, Env | SecretFile):
        fix = 'Name the variable or the file that holds it: password=Env("SHOP_PASSWORD").'
        raise DefinitionError(
            f"{where}, password", "a secret by reference", "something else", fix, code="DEFINITION-339"
        )
    if match is not None and _WITH_PASSWORD.match(match["authority"]):
        fix = 'Name the variable or the file that holds it: url="...://user@host/...", password=Env("SHOP_PASSWORD").'
        expected, got = "a password by reference", "one that is written out"
        raise DefinitionError(f"{where}, url", expected, got, fix, code="DEFINITION-298")
    return "" if match is None else match["dialect"]
