"""Webhooks: settings of a delivery to a program that is called. Frozen, without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import ClassVar, Literal

from floodmark.core.errors import DefinitionError
from floodmark.core.time import span
from floodmark.spec.assets.alert import check_request
from floodmark.spec.assets.delivery import Delivery, Guarantee
from floodmark.spec.values.secret import Secret


@dataclass(frozen=True, slots=True)
class ToWebhook(Delivery):
    """A POST per change of an output, at least once, in the order of commits. Any answer of 2xx counts as received.

    The body is JSON: ``delivery``, ``output``, ``commit``, ``change`` (``upsert`` or ``delete``; ``replace`` before all results are sent anew), ``key`` and
    ``row``. The header ``Idempotency-Key`` is the same whenever a change is sent again, and another one for each change.

    Args:
        url: ``http`` or ``https``; ``Env("HOOK_URL")`` where it is a secret.
        headers: name -> value; ``Env`` or ``SecretFile`` for those that are secrets. The file of a token is read again when the receiver refuses the token.
        timeout: longest time of an answer; then the delivery waits and sends again.
        start: ``"latest"``: only changes from the first start on; ``"earliest"``: all results that are there, first.

    Raises:
        DefinitionError: DEFINITION-298, another URL, or a secret that is written out; 337, a setting; 001 and 004, no duration.
    """

    implementation: ClassVar[str] = "floodmark.deliveries.webhook:WebhookSink"
    kind: ClassVar[str] = "webhook"
    guarantee: ClassVar[Guarantee] = "key"

    url: str | Secret
    _: KW_ONLY
    headers: Mapping[str, str | Secret] = field(default_factory=dict, hash=False)
    timeout: str | timedelta = "10 seconds"
    start: Literal["earliest", "latest"] = "latest"

    def __post_init__(self) -> None:
        """Check the settings."""
        check_request(self.url, self.headers)
        if span(self.timeout, "ToWebhook, timeout") <= 0:
            fix = 'For example timeout="10 seconds".'
            raise DefinitionError(
                "ToWebhook, timeout", "more than nothing", repr(self.timeout), fix, code="DEFINITION-337"
            )
        if self.start not in {"earliest", "latest"}:
            got, fix = f"start={self.start!r}", "Correct start."
            raise DefinitionError("ToWebhook", '"earliest" or "latest"', got, fix, code="DEFINITION-337")

    @property
    def from_now(self) -> bool:
        """Whether results that are there at the first start are left out."""
        return self.start == "latest"

    @property
    def retracts(self) -> bool:
        """A change says that a result is deleted."""
        return True
