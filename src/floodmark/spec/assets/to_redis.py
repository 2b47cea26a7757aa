"""Redis: settings of a delivery into a server of Redis. Frozen, without I/O."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from floodmark.core.errors import DefinitionError
from floodmark.spec.assets.delivery import Guarantee, Mirror
from floodmark.spec.values.database import dialect_of
from floodmark.spec.values.secret import Secret

SCHEMES = ("redis", "rediss", "unix")


@dataclass(frozen=True, slots=True)
class ToRedis(Mirror):
    """The last value of each result under a key of Redis, exactly once: values and position change in one MULTI.

    The key is the prefix, a colon, and the key of the result as JSON: ``sales:{"country":"NL"}``; the value is the last value as JSON. A result that is
    revised is set anew; one that is taken back is deleted. ``_floodmark:NAME`` says how far the delivery has got.

    Args:
        url: of the server: ``"redis://cache:6379/0"``, ``"rediss://..."`` with TLS, ``"unix:///run/redis.sock"``; or a reference to one that has
            a password: ``Env("CACHE_URL")``.
        prefix: of the keys, which belong to the delivery alone; by default the name of the output's table.
        password: where it is, if the URL has none.

    Raises:
        DefinitionError: DEFINITION-410, a setting; 338, no URL; 339, a password that is no reference; 298, one that is written out.
    """

    implementation: ClassVar[str] = "floodmark.deliveries.redis:RedisSink"
    kind: ClassVar[str] = "redis"
    guarantee: ClassVar[Guarantee] = "transaction"

    url: str | Secret
    _: KW_ONLY
    prefix: str = ""
    password: Secret | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        scheme = dialect_of(self.url, self.password, "ToRedis")
        if scheme not in {"", *SCHEMES}:
            fix = 'For example "redis://cache:6379/0".'
            raise DefinitionError("ToRedis, url", f"a URL of {', '.join(SCHEMES)}", scheme, fix, code="DEFINITION-410")
        if not isinstance(self.prefix, str) or self.prefix.startswith("_floodmark"):
            got, fix = repr(self.prefix), "Leave it out for the name of the output's table."
            raise DefinitionError("ToRedis, prefix", "a text of your own", got, fix, code="DEFINITION-410")
