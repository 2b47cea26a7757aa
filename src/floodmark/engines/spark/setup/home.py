"""The Spark of this machine: the Spark inside the installed pyspark, and links to it without its zipped Python."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from floodmark.core.errors import SetupError


def cache_folder() -> Path:
    """``$FLOODMARK_CACHE``, else ``~/.cache/floodmark``: one per user, shared by all clones."""
    return Path(os.environ.get("FLOODMARK_CACHE") or Path.home() / ".cache" / "floodmark").expanduser().absolute()


def spark_home() -> Path:
    """The Spark inside the installed pyspark.

    Raises:
        SetupError: SETUP-004, there is none: floodmark alone brings pyspark's client, without Spark's own jars.
    """
    spec = find_spec("pyspark")
    home = None if spec is None or spec.origin is None else Path(spec.origin).parent
    if home is None or not (home / "jars").is_dir():
        got = "no pyspark" if home is None else "its client alone"
        fix = "Run `pip install 'floodmark[spark]'` (450 MB). The embedded engine needs no Spark: --engine embedded, or FLOODMARK_ENGINE=embedded."
        raise SetupError("Spark", "pyspark 4.2.0 with Spark's jars", got, fix, code="SETUP-004")
    return home


RELEASE = "4.2"
"""The Spark for which Delta's jars are, and whose answers are proven; any patch of it."""


def check_release() -> None:
    """Make sure that the installed pyspark is of ``RELEASE``.

    Raises:
        SetupError: SETUP-124: Delta's jars of another release do not load, and state may be of another form.
    """
    import pyspark  # noqa: PLC0415 - slow to import

    if not pyspark.__version__.startswith(f"{RELEASE}."):
        fix = "Install it where floodmark runs: pip install 'floodmark[spark]'. Savepoints keep: streams resume on it."
        got, folder = pyspark.__version__, str(Path(str(pyspark.__file__)).parent)
        raise SetupError(f"Spark in {folder}", f"Spark {RELEASE}, with its Delta", got, fix, code="SETUP-124")


def home(folder: Path) -> Path:
    """The Spark that sessions of this machine start: links to the installed Spark, or the installed Spark itself until ``link`` was called.

    Spark's zipped Python is not linked: the zip holds no compiled modules, and each worker would compile them for half a second. Workers
    import the installed pyspark instead.
    """
    return _linked(folder) if is_linked(folder) else spark_home()


def is_linked(folder: Path) -> bool:
    """Whether the links of ``home`` are there."""
    return _linked(folder).is_dir()


def link(folder: Path) -> None:
    """Make the links of ``home``; remove links to a Spark that no longer exists."""
    for old in folder.glob("home-*"):
        if not (old / "jars").exists():
            shutil.rmtree(old)
    if not is_linked(folder):
        with tempfile.TemporaryDirectory(prefix="linking-", dir=folder, ignore_cleanup_errors=True) as work:
            made = Path(work) / "home"
            made.mkdir()
            for entry in spark_home().iterdir():
                if entry.name != "python":
                    (made / entry.name).symlink_to(entry)
            made.rename(_linked(folder))


def _linked(folder: Path) -> Path:
    return folder / f"home-{hashlib.sha256(str(spark_home()).encode()).hexdigest()[:12]}"
