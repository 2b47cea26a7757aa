"""Check of the text that names a Spark master."""

from __future__ import annotations

import re

from floodmark.core.errors import SetupError, closest

_MASTERS = ("local", "local-cluster", "spark", "yarn", "k8s")
_MASTER = re.compile(
    r"local(\[\s*(\d+|\*)\s*(,\s*\d+\s*)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|spark://.+:\d+.*|yarn|k8s://.+"
)


def check_master(master: str) -> None:
    """Raise SetupError SETUP-054 if a text is no Spark master."""
    if _MASTER.fullmatch(master):
        return
    kind = re.split(r"[\[:]", master, maxsplit=1)[0]
    fix = f"{closest(kind, _MASTERS)}Correct it in resources/settings.py, or set FLOODMARK_MASTER='local[2]'."
    expected = "local, local[N], local[*], spark://HOST:PORT, yarn or k8s://URL"
    raise SetupError("Spark master", expected, repr(master), fix, code="SETUP-054")
