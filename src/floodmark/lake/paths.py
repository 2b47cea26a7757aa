"""The lake: one folder (or bucket prefix) that holds every table floodmark writes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from floodmark.core.errors import SetupError
from floodmark.lake.storage import folders, read, write
from floodmark.spec.operator import Input
from floodmark.spec.workspace import Settings

QUARANTINE = "__quarantine"
"""Ends the name of a quarantine, behind that of its log."""
_FORK = "fork.json"


@dataclass(frozen=True, slots=True)
class Lake:
    """Where tables lie; nothing is opened or created here.

    Args:
        root: a folder, made absolute, or a URI such as ``s3a://bucket/lake``.
        logs: the root of another lake whose logs are read instead of this one's; None is this lake.
        upstream: the root of another lake whose outputs are read where an operator reads another one's; None is this lake.
    """

    root: str = "lake"
    logs: str | None = None
    upstream: str | None = None

    def __post_init__(self) -> None:
        """Make paths absolute.

        Raises:
            SetupError: SETUP-041, a path that Delta, Spark and Arrow would each read in another way.
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
        """The lake of a workspace; where it is a fork, it reads what the original reads."""
        return Lake.forked(settings.lake) or Lake(settings.lake, logs=settings.logs)

    @staticmethod
    def forked(root: str) -> Lake | None:
        """The lake at a root where it is a fork; None where it is none."""
        content = read(Lake(root).internal(_FORK))
        return None if content is None else Lake(root, **json.loads(content))

    def fork(self, root: str) -> Lake:
        """Another lake that reads the logs and outputs this one reads, and writes none of them; remembered there."""
        reader = Lake(root, logs=self.logs or self.root, upstream=self.upstream or self.root)
        write(reader.internal(_FORK), json.dumps({"logs": reader.logs, "upstream": reader.upstream}).encode())
        return reader

    @property
    def is_local(self) -> bool:
        """True for a folder of this machine, where locks work."""
        return is_local(self.root)

    @property
    def there(self) -> bool:
        """Whether floodmark has written into it; False as well for a folder where a disk is to be mounted."""
        return "_floodmark" in folders(self.root)

    def log(self, source: str) -> str:
        """The log a source lands in."""
        return f"{self.logs or self.root}/logs/{source}"

    def quarantine(self, log: str) -> str:
        """The table of rows that broke the contract of a log."""
        return f"{self.logs or self.root}/logs/{log}{QUARANTINE}"

    def output(self, table: str) -> str:
        """An output of an operator: ``hourly``, ``split__severe``, ``hourly__late``, ``hourly__current``."""
        return f"{self.root}/outputs/{table}"

    def input(self, input_: Input) -> str:
        """The table an input reads: a log, or an output of another operator."""
        return self.log(input_.table) if input_.upstream is None else self.read(input_.table)

    def read(self, table: str) -> str:
        """An output of an operator, as others read it."""
        return f"{self.upstream or self.root}/outputs/{table}"

    def internal(self, *parts: str) -> str:
        """Floodmark's own: checkpoints, ledger, lists of landed files, locks."""
        return "/".join((self.root, "_floodmark", *parts))


def is_local(path: str) -> bool:
    """True for a path of this machine, not a URI."""
    return "://" not in path


def absolute(path: str) -> str:
    """An absolute path without a trailing slash; ``file:`` is taken off, other URIs stay as they are."""
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    return path.rstrip("/") if not is_local(path) else str(Path(path).expanduser().absolute())
