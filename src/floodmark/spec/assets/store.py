"""The store of a lake in a bucket: where it is, and by which variables or files its credentials are variables. Declared in ``resources/``."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.core.errors import ConnectorError, DefinitionError
from floodmark.spec.values.secret import Env, Secret, SecretFile, described, read


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """How the store of a lake in a bucket is reached. By default as other programs reach it, by the variables ``AWS_...`` of the environment.

    Args:
        access_key: reference to the id of the access key.
        secret_key: reference to the secret key.
        session_token: reference to the token of temporary credentials.
        region: region of the bucket.
        endpoint: URL of a store that is not Amazon's; one of ``http`` is allowed.

    Raises:
        DefinitionError: DEFINITION-298, a secret that is written out, or another endpoint.
    """

    access_key: Secret | None = None
    secret_key: Secret | None = None
    session_token: Secret | None = None
    region: str | None = None
    endpoint: str | None = None

    def __post_init__(self) -> None:
        """Refuse secrets that are written out."""
        for name in ("access_key", "secret_key", "session_token"):
            if not isinstance(getattr(self, name), Env | SecretFile | None):
                fix = f'Name the variable or the file that holds it: {name}=Env("LAKE_KEY") or {name}=SecretFile("/run/secrets/lake_key").'
                expected, got = "a secret by reference", "one that is written out"
                raise DefinitionError(f"Store({name}=...)", expected, got, fix, code="DEFINITION-298")
        if self.endpoint is not None and not self.endpoint.startswith(("http://", "https://")):
            fix = 'For example endpoint="https://s3.example.com".'
            raise DefinitionError(
                "Store(endpoint=...)", "a URL of http or https", "another one", fix, code="DEFINITION-298"
            )

    def environment(self) -> dict[str, str]:
        """The variables by which every library reaches the store, with the secrets. Never to be written or passed as arguments.

        Raises:
            ConnectorError: CONNECTOR-215, a variable or a file of a secret is missing or empty.
        """
        secrets = {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_SESSION_TOKEN": self.session_token,
        }
        variables = {variable: self._read(secret) for variable, secret in secrets.items() if secret is not None}
        plain = {"AWS_REGION": self.region, "AWS_ENDPOINT_URL": self.endpoint}
        variables |= {variable: text for variable, text in plain.items() if text is not None}
        if self.endpoint is not None and self.endpoint.startswith("http://"):
            variables["AWS_ALLOW_HTTP"] = "true"
        return variables

    @staticmethod
    def _read(secret: Secret) -> str:
        value = read(secret)
        if not value:
            fix = "Set it where floodmark runs, also for its supervisor and Dagster; or correct Store(...) in resources/settings.py."
            raise ConnectorError(
                described(secret), "a secret of the lake's store", "nothing", fix, code="CONNECTOR-215"
            )
        return value
