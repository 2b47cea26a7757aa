"""Search engines: settings of a delivery into OpenSearch or Elasticsearch. Frozen, without I/O."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from floodmark.core.errors import DefinitionError
from floodmark.spec.assets.delivery import Guarantee, Mirror
from floodmark.spec.values.database import dialect_of
from floodmark.spec.values.secret import Env, Secret, SecretFile

_INDEX = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")
"""What both engines take as a name."""


@dataclass(frozen=True, slots=True)
class ToSearch(Mirror):
    """The last value of each result as a document of OpenSearch or Elasticsearch.

    Documents are found under an alias, ``index``, of an index whose name has a number behind it. The id of a document is that of its result, and its
    version the number of the delivery, so that a delivery that is repeated changes nothing. All results at once, as after a rebuild, go into a new
    index, to which the alias then moves.

    Args:
        url: of the server: ``"https://search:9200"``; or a reference to one that has a password: ``Env("SEARCH_URL")``.
        index: name of the alias; by default the name of the output's table.
        user: name of the user, with ``password``.
        password: where it is, if the URL has none.
        api_key: where an API key is, instead of a user and a password.
        ca_file: certificates of the authority that the server's certificate is from, if the system does not know it.

    Raises:
        DefinitionError: DEFINITION-411, a setting; 338, no URL; 339, a password that is no reference; 298, one that is written out.
    """

    implementation: ClassVar[str] = "floodmark.deliveries.search:SearchSink"
    kind: ClassVar[str] = "search"
    guarantee: ClassVar[Guarantee] = "key"

    url: str | Secret
    _: KW_ONLY
    index: str = ""
    user: str = ""
    password: Secret | None = None
    api_key: Secret | None = None
    ca_file: str = ""

    def __post_init__(self) -> None:
        """Check the settings."""
        where = "ToSearch"
        scheme = dialect_of(self.url, self.password, where)
        if scheme not in {"", "http", "https"}:
            fix = 'For example "https://search:9200".'
            raise DefinitionError(f"{where}, url", "a URL of http or https", scheme, fix, code="DEFINITION-411")
        if self.index and not _INDEX.fullmatch(self.index):
            fix = "Leave it out for the name of the output's table."
            expected = "lower-case letters, digits, '.', '_' and '-', at most 200"
            raise DefinitionError(f"{where}, index", expected, repr(self.index), fix, code="DEFINITION-411")
        if self.api_key is not None and (
            not isinstance(self.api_key, Env | SecretFile) or self.user or self.password is not None
        ):
            fix = 'For example api_key=Env("SEARCH_KEY").'
            got = "a text" if isinstance(self.api_key, str) else "both"
            expected = "a reference to a key, or a user and a password"
            raise DefinitionError(f"{where}, api_key", expected, got, fix, code="DEFINITION-411")
        if bool(self.user) != (self.password is not None):
            fix = 'For example user="floodmark", password=Env("SEARCH_PASSWORD").'
            got = "a user alone" if self.user else "a password alone"
            raise DefinitionError(where, "a user and a password", got, fix, code="DEFINITION-411")
