"""Databases: engines of SQLAlchemy for URLs and passwords by reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from floodmark.core.errors import ConnectorError, SetupError
from floodmark.spec.values import secret
from floodmark.spec.values.secret import Env, Secret, SecretFile

if TYPE_CHECKING:
    from sqlalchemy import Engine


def engine_of(
    url: str | Secret,
    password: Secret | None,
    *,
    where: str,
    setting: str,
    options: Callable[[str], Mapping[str, Any]] = lambda _: {},
) -> Engine:
    """A new engine, which has not connected yet.

    Args:
        url: of the database, or where it is.
        password: where it is, if the URL has none.
        where: of an error: of what source or delivery.
        setting: of an error: what names URL and password, ``SqlTable(...)``.
        options: name of the dialect -> options of the engine.

    Raises:
        ConnectorError: CONNECTOR-235, a variable or a file of a secret is missing or empty; 286, the text there is no URL of a database.
        SetupError: SETUP-130, the driver of the database is not installed.
    """
    from sqlalchemy import create_engine, exc, make_url  # noqa: PLC0415 - imports much

    text = url
    if isinstance(text, Env | SecretFile):
        text = secret.needed(text, where=where, name="url", setting=f"url= of {setting}")
    try:
        parsed = make_url(text)
    except exc.ArgumentError:
        fix = f"For example postgresql+psycopg://reader@db/shop, mariadb+pymysql://..., sqlite:////data/shop.db. Correct url= of {setting}, or what it names."
        raise ConnectorError(where, "a URL of a database", "something else", fix, code="CONNECTOR-286") from None
    if password is not None:
        named = secret.needed(password, where=where, name="password", setting=f"password= of {setting}")
        parsed = parsed.set(password=named)
    try:
        return create_engine(parsed, pool_pre_ping=True, **options(parsed.get_backend_name()))
    except (ModuleNotFoundError, exc.NoSuchModuleError) as error:
        fix = "Install it where floodmark runs and on workers of a cluster: pip install 'floodmark[sql]' has those of PostgreSQL and MariaDB."
        raise SetupError(where, f"the driver of {parsed.drivername}", "none", fix, code="SETUP-130") from error
