"""Credentials of a lake's store: from their references in the settings into the environment, where every library and child process finds them.

A secret is in no argument, file or record. Of secrets in files the environment also has the paths, so that any process can read them again.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from floodmark.spec.assets.store import Store
from floodmark.spec.values.secret import SecretFile

_FILES = "FLOODMARK_STORE_FILES"
"""Variable with the paths of secrets, by the variables of the secrets, as JSON."""


def reach(store: Store) -> None:
    """Set the variables by which a store is reached.

    Raises:
        ConnectorError: CONNECTOR-215, a variable or a file of a secret is missing or empty.
    """
    os.environ.update(store.environment())
    secrets = {
        "AWS_ACCESS_KEY_ID": store.access_key,
        "AWS_SECRET_ACCESS_KEY": store.secret_key,
        "AWS_SESSION_TOKEN": store.session_token,
    }
    files = {variable: secret.path for variable, secret in secrets.items() if isinstance(secret, SecretFile)}
    if files:
        os.environ[_FILES] = json.dumps(files)


def refreshed() -> bool:
    """Read secrets in files again. Returns True if one has changed."""
    before = dict(os.environ)
    for variable, path in json.loads(os.environ.get(_FILES) or "{}").items():
        with suppress(OSError):  # is just being replaced
            if value := Path(path).read_text("utf-8").strip():
                os.environ[variable] = value
    return before != dict(os.environ)
