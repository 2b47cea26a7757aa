"""Pages whose commands are run: a page in Markdown is read as steps, the steps are run in a folder, and what they print is compared.

    python tests/support/console_pages.py README.md docs/tour.md     # write what they print now into the pages

- ```` ```python NAME ```` : the block is written to the file NAME.
- ```` ```diff NAME ```` : the lines of the block that begin with ``-`` are replaced in NAME by those that begin with ``+``.
- ```` ```console ```` : lines that begin with ``$ `` are commands, those after a command are what it prints, on both streams.
- ```` ```console quiet ```` : the same, without what is printed. A command that ends in ``&`` runs beside those behind it, and is stopped with the reader.

Other blocks are not run. What changes from run to run is compared by its form alone: times, rates, versions, names of savepoints.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import forked_verbs

HOME = "/home/you"
"""What the page shows for the folder it is run in."""
FENCE = re.compile(r"^```(?P<kind>\w*) ?(?P<argument>[^\n]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
SAVEPOINT = re.compile(r"\d{8}T\d{6}-[0-9a-z]{5}")
CHANGES = (
    (SAVEPOINT, "<id>"),
    (re.compile(r"@[0-9a-f]{8}"), "@<version>"),
    (re.compile(r"package [0-9a-f]{16}"), "package <hash>"),
    (re.compile(r"20(?!25-03-01)\d\d-\d\d-\d\dT[\d:.]+Z"), "<now>"),
    (re.compile(r"[\d,]+ (bytes|rows/s|times)"), r"<n> \1"),
    (re.compile(r"\b\d+(\.\d+)? s\b"), "<n> s"),
    (re.compile(r"\b(approved|aborted) by [^\s,;:]+"), r"\1 by <user>"),
    (re.compile(r"[\d.]+ [MGT]B are free"), "<n> GB are free"),
    (re.compile(r" +\d\d,\d\d\d +"), " <n> "),
)


RAN: list[str] = []
"""What the test that runs has run of pages (``page_runs.py``)."""


def ran(*texts: str) -> None:
    """Texts were run as they stand in a page: commands, a program, a statement, a file of settings."""
    RAN.extend(texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page that is run.

    Args:
        kind: language.
        argument: what stands behind it.
        body: text.
        start: where the body begins in the page.
    """

    kind: str
    argument: str
    body: str
    start: int

    @property
    def commands(self) -> Iterator[tuple[str, str]]:
        """(command, what it prints) of a console's."""
        for part in re.split(r"^\$ ", self.body, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield command, printed


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that are run, in order."""
    found = [
        Block(kind=one["kind"], argument=one["argument"], body=one["body"], start=one.start("body"))
        for one in FENCE.finditer(page.read_text("utf-8"))
    ]
    return [one for one in found if one.kind == "console" or (one.kind in {"python", "diff"} and one.argument)]


@dataclass(slots=True)
class Reader:
    """Somebody who does what a page says.

    Args:
        folder: empty; the page is read there.
        environment: variables of the commands.
    """

    folder: Path
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    _at: Path = field(init=False)
    _shell: str = field(init=False)
    _named: dict[str, str] = field(init=False, default_factory=dict)
    _beside: list[subprocess.Popen[bytes]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Begin in the folder."""
        self._at, self._shell = self.folder, shutil.which("bash") or "bash"
        folders = [forked_verbs.folder(), str(Path(sys.executable).parent), self.environment.get("PATH", "")]
        self.environment |= {"PATH": os.pathsep.join(filter(None, folders)), "PYTHONUNBUFFERED": "1", "COLUMNS": "100"}

    def stop(self) -> None:
        """Stop what runs beside, as a person does."""
        while self._beside:
            process = self._beside.pop()
            process.send_signal(signal.SIGINT)
            process.wait(300)

    def enter(self, folder: str) -> None:
        """Go to a folder below the one in which the reader is."""
        self._at /= folder

    def do(self, block: Block) -> str:
        """Do what a block says; its body with what is printed now.

        Raises:
            AssertionError: a command fails, or a line to be replaced is not there.
        """
        file, printed = self._at / block.argument, block.body
        if block.kind == "python":
            file.write_text(block.body, "utf-8")
        elif block.kind == "diff":
            file.write_text(_edited(file.read_text("utf-8"), block.body), "utf-8")
        else:
            printed = "".join(self._run(command, shown, block) for command, shown in block.commands)
        ran(block.body)
        return printed

    def _run(self, command: str, shown: str, block: Block) -> str:
        """Run a command, with the names that savepoints of the page have here; the command and what is printed."""
        for name, here in self._named.items():
            command = command.replace(name, here)
        printed = self._printed(command)
        self._named |= dict(zip(SAVEPOINT.findall(shown), SAVEPOINT.findall(printed), strict=False))
        return f"$ {command}\n{'' if block.argument == 'quiet' else printed}"

    def _printed(self, command: str) -> str:
        if command.startswith("cd "):
            self.enter(command.removeprefix("cd "))
            return ""
        written, _, _ = command.partition("  # ")
        if written.rstrip().endswith("&"):
            alone = [self._shell, "-c", f"exec {written.rstrip().removesuffix('&')}"]
            nowhere = subprocess.DEVNULL
            self._beside.append(
                subprocess.Popen(
                    alone, cwd=self._at, env=self.environment, stdin=nowhere, stdout=nowhere, stderr=nowhere
                )
            )
            return ""
        done = subprocess.run(
            [self._shell, "-c", command],
            cwd=self._at,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        return done.stdout.replace(str(self.folder), HOME)


def _edited(text: str, body: str) -> str:
    for old, new in re.findall(r"((?:^-.*\n)+)((?:^\+.*\n)*)", body, re.MULTILINE):
        before, after = (re.sub(r"^.", "", lines, flags=re.MULTILINE) for lines in (old, new))
        assert text.count(before) == 1, f"not there once:\n{before}"
        text = text.replace(before, after)
    return text


def form(printed: str) -> str:
    """What is printed, without what changes from run to run."""
    for pattern, instead in CHANGES:
        printed = pattern.sub(instead, printed)
    return re.sub(r" {2,}", "  ", printed)


def check(printed: str, block: Block) -> None:
    """Fail with what is printed now beside what the page shows, unless both are the same but for what changes from run to run.

    Raises:
        AssertionError: they differ; with the lines, and the command that writes them into the page.
    """
    now, shown = form(printed), form(block.body)
    if now != shown:
        lines = difflib.unified_diff(shown.splitlines(), now.splitlines(), "the page shows", "printed now", lineterm="")
        fix = "write what is printed now: python tests/support/console_pages.py PAGE, or recipes.py PAGE for pages of recipes"
        raise AssertionError("\n".join([*lines, fix]))


def rewrite(page: Path) -> None:
    """Write what the commands of a page print now into the page."""
    text, shift = page.read_text("utf-8"), 0
    with TemporaryDirectory() as folder:
        reader = Reader(Path(folder).resolve())
        try:
            for block in blocks(page):
                body = reader.do(block)
                start = block.start + shift
                text = text[:start] + body + text[start + len(block.body) :]
                shift += len(body) - len(block.body)
        finally:
            reader.stop()
    page.write_text(text, "utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        rewrite(Path(name))
