"""Databases by URL: a URL of SQLAlchemy's without a password, or a reference to one. Frozen, without I/O."""

from __future__ import annotations

import re

from floodmark.core.errors import DefinitionError
from floodmark.spec.values.secret import Env, Secret, SecretFile

_URL = re.compile(r"(?P<dialect>[A-Za-z0-9_]+)(\+[A-Za-z0-9_]+)?://(?P<authority>[^/]*)(/.*)?", re.DOTALL)
_WITH_PASSWORD = re.compile(r"[^@]*:[^@]+@")


def dialect_of(url: str | Secret, password: Secret | None, where: str, *, code: str) -> str:
    """The dialect that a URL names; empty where the URL is a reference.

    Args:
        url: ``"postgresql+psycopg://reader@db/shop"``, ``Env("SHOP_URL")``.
        password: where it is, if the URL has none.
        where: of an error.
        code: of an error about the URL or the password.

    Raises:
        DefinitionError: ``code``, neither a URL nor a reference; DEFINITION-298, a password that is written out.
    """
    match = _URL.fullmatch(url) if isinstance(url, str) else None
    if match is None and not isinstance(url, Env | SecretFile):
        expected = '"dialect+driver://user@host/database", or where one is: Env(...) or SecretFile(...)'
        raise DefinitionError(
            f"{where}, url", expected, "something else", "Correct url.", code=code
        )  # perhaps a secret
    if password is not None and not isinstance(password, Env | SecretFile):
        fix = 'Name the variable or the file that holds it: password=Env("SHOP_PASSWORD").'
        raise DefinitionError(f"{where}, password", "a secret by reference", "something else", fix, code=code)
    if match is not None and _WITH_PASSWORD.match(match["authority"]):
        fix = 'Name the variable or the file that holds it: url="...://user@host/...", password=Env("SHOP_PASSWORD").'
        expected, got = "a password by reference", "one that is written out"
        raise DefinitionError(f"{where}, url", expected, got, fix, code="DEFINITION-298")
    return "" if match is None else match["dialect"]
