"""The lake: one folder (or bucket prefix) that holds every table floodmark writes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from floodmark.core.errors import CapabilityError, SetupError
from floodmark.lake.folder.bucket import check_store, is_bucket
from floodmark.lake.folder.credentials import reach
from floodmark.lake.folder.storage import folders, read, write
from floodmark.spec.graph.operator import Input, Operator
from floodmark.spec.rows.source import Source
from floodmark.spec.workspace import Settings

QUARANTINE = "__quarantine"
"""Suffix of a quarantine's name, after the name of its log."""
INTERNAL = "_floodmark"
"""Name of the folder of a lake's internal files."""
_FORK = "fork.json"


@dataclass(frozen=True, slots=True)
class Lake:
    """The paths of a lake's tables. Opens and creates nothing.

    Args:
        root: a folder, made absolute, or a URI such as ``s3a://bucket/lake``.
        logs: the root of another lake whose logs are read; None for this lake.
        upstream: the root of another lake whose outputs operators read; None for this lake.
    """

    root: str = "lake"
    logs: str | None = None
    upstream: str | None = None

    def __post_init__(self) -> None:
        """Convert the roots to absolute paths.

        Raises:
            SetupError: SETUP-041, a path contains a character that Delta, Spark and Arrow interpret differently.
        """
        for root in filter(None, (self.root, self.logs, self.upstream)):
            if wrong := [sign for sign in "#?%" if sign in root]:
                fix = "Name the folder otherwise, or put it elsewhere: parts of its path are taken for those of a URI."
                raise SetupError(
                    f"lake '{root}'", f"a path without {' '.join(wrong)}", "one with it", fix, code="SETUP-041"
                )
        object.__setattr__(self, "root", absolute(self.root))
        for name in ("logs", "upstream"):
            if (root := getattr(self, name)) is not None:
                object.__setattr__(self, name, absolute(root))

    @staticmethod
    def of(settings: Settings) -> Lake:
        """The lake of a workspace. A forked lake reads the logs and outputs of its original. The store of a lake in a bucket is checked once.

        Raises:
            ConnectorError: CONNECTOR-215 a secret of the store is missing, CONNECTOR-216 the store has no conditional writes.
        """
        if settings.store is not None:
            reach(settings.store)
        if is_bucket(settings.lake):
            check_store(settings.lake.rstrip("/"))
        return Lake.forked(settings.lake) or Lake(settings.lake, logs=settings.logs)

    @staticmethod
    def forked(root: str) -> Lake | None:
        """The forked lake at a root; None if the lake there is not a fork."""
        content = read(Lake(root).internal(_FORK))
        return None if content is None else Lake(root, **json.loads(content))

    def fork(self, root: str) -> Lake:
        """Create another lake that reads the logs and outputs this lake reads, and writes none of them. The new lake stores where it reads."""
        reader = Lake(root, logs=self.logs or self.root, upstream=self.upstream or self.root)
        write(reader.internal(_FORK), json.dumps({"logs": reader.logs, "upstream": reader.upstream}).encode())
        return reader

    @property
    def is_local(self) -> bool:
        """True for a folder of this machine, where locks work."""
        return is_local(self.root)

    @property
    def there(self) -> bool:
        """True if floodmark has written into the lake; False also for the empty mount point of a missing disk."""
        return INTERNAL in folders(self.root)

    def log(self, source: str) -> str:
        """Path of a source's log."""
        return f"{self.logs or self.root}/logs/{source}"

    def quarantine(self, log: str) -> str:
        """Path of the quarantine of a log, with the rows that broke its contract."""
        return f"{self.logs or self.root}/logs/{log}{QUARANTINE}"

    def output(self, table: str) -> str:
        """Path of an output of an operator: ``hourly``, ``split__severe``, ``hourly__late``, ``hourly__current``."""
        return f"{self.root}/outputs/{table}"

    def input(self, input_: Input) -> str:
        """Path of the table that an input reads: a log, or an output of another operator."""
        return self.log(input_.table) if input_.upstream is None else self.read(input_.table)

    def written(self, stream: Operator | Source, table: str) -> str:
        """Path of a table that a stream writes: the log of a source, or an output of an operator."""
        return self.output(table) if isinstance(stream, Operator) else self.log(table)

    def read(self, table: str) -> str:
        """Path from which other operators read an output: in ``upstream`` if set."""
        return f"{self.upstream or self.root}/outputs/{table}"

    def model(self, name: str) -> str:
        """Path of the table of a fitted model's versions: a fork has versions of its own."""
        return f"{self.root}/models/{name}"

    def fitting(self, model: str) -> str:
        """Path of the folder of files that exist while a version of a model is fitted."""
        return self.internal("models", model, "fitting")

    def internal(self, *parts: str) -> str:
        """Path of floodmark's internal files: checkpoints, ledger, catalogs of landed units, locks."""
        return "/".join((self.root, INTERNAL, *parts))


def is_local(path: str) -> bool:
    """True for a path of this machine, not a URI."""
    return "://" not in path


def is_reached(path: str) -> bool:
    """True for a path of this machine, and for a URI of a bucket: places in which the embedded engine works."""
    return is_local(path) or is_bucket(path)


def check_reached(roots: Iterable[str], fix: str) -> None:
    """Check that the embedded engine works in all roots of a lake.

    Args:
        roots: roots of the lake, of its logs and of what it reads.
        fix: command that does the same on Spark.

    Raises:
        CapabilityError: CAPABILITY-033, a root is neither on a local disk nor in a bucket.
    """
    for root in roots:
        if not is_reached(root):
            expected = "a local disk or a bucket for the embedded engine"
            raise CapabilityError(f"lake {root}", expected, "another URI", f"Use Spark: {fix}", code="CAPABILITY-033")


def absolute(path: str) -> str:
    """An absolute path without a trailing slash. ``file:`` is removed; other URIs stay unchanged. One with ``..`` in it is resolved, as two names of a lake would be two lakes."""
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    if not is_local(path):
        return path.rstrip("/")
    local = Path(path).expanduser()
    return str(local.resolve() if ".." in local.parts else local.absolute())
