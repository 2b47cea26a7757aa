"""Processes of pools are forked."""

from __future__ import annotations

from collections.abc import Iterator

import forked_pools
import pytest


@pytest.fixture(scope="session", autouse=True)
def _forked_pools() -> Iterator[None]:
    """Those of proofs by killing, and of the checks of connectors: two seconds of imports less for each."""
    from floodmark.testing import connectors, killed_proof

    with pytest.MonkeyPatch.context() as patched:
        for module in (connectors, killed_proof):
            patched.setattr(module, "get_context", forked_pools.context)
        yield
