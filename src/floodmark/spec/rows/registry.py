"""Schema registry: where the schemas of messages are looked up by their ids. Frozen, without I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from floodmark.core.errors import DefinitionError
from floodmark.spec.values.secret import Env, Secret, SecretFile


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRegistry:
    """A schema registry with the interface of Confluent's: a message begins with a byte 0 and the id of its schema, in four bytes.

    Args:
        url: of the registry, ``"https://registry:8081"``, with a path where it has one.
        user: name for HTTP's basic authentication, or a reference.
        password: a reference: ``Env("REGISTRY_PASSWORD")``.
        token: a reference to a bearer token, instead of user and password.
        ca: path of a file with the certificates to trust; by default those of the system.

    Raises:
        DefinitionError: DEFINITION-313, a setting; 298, a secret that is written out.
    """

    url: str
    user: str | Secret | None = None
    password: Secret | None = None
    token: Secret | None = None
    ca: str | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        where = "SchemaRegistry"
        for name in ("password", "token"):
            if not isinstance(getattr(self, name), Env | SecretFile | None):
                fix = f'Name the variable or the file that holds it: {name}=Env("REGISTRY_SECRET").'
                raise DefinitionError(
                    f"{where}, {name}", "a secret by reference", "one that is written out", fix, code="DEFINITION-298"
                )
        if not isinstance(self.url, str) or not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s?#]*)?", self.url):
            fix = 'For example SchemaRegistry(url="https://registry:8081", user="lander", password=Env("REGISTRY_PASSWORD")).'
            expected = "an address of HTTP without a password in it"
            got = "none" if not self.url else "another text" if "@" in str(self.url) else repr(self.url)
            raise DefinitionError(f"{where}, url", expected, got, fix, code="DEFINITION-313")
        if (self.user is None) != (self.password is None) or (self.user is not None and self.token is not None):
            got = ", ".join(name for name in ("user", "password", "token") if getattr(self, name) is not None)
            fix = "Give user= and password=, or token=, or none of them."
            raise DefinitionError(where, "user and password, or a token", got, fix, code="DEFINITION-313")
        if self.ca is not None and not Path(self.ca).is_absolute():
            fix = 'For example ca="/etc/ssl/registry.pem".'
            raise DefinitionError(f"{where}, ca", "an absolute path", repr(self.ca), fix, code="DEFINITION-313")
