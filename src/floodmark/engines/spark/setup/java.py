"""The Java of this machine: its folder, its version, and the error if there is none."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from floodmark.core.errors import SetupError

OLDEST = 17
"""The oldest Java that Spark 4.2 runs on."""

_BINARY = "java.exe" if os.name == "nt" else "java"
_USUAL_HOMES = (
    "/usr/lib/jvm/*",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """An installed Java.

    Args:
        home: folder, the value for ``JAVA_HOME``.
        version: in Java's own form, ``17.0.15``.
    """

    home: Path
    version: str

    @property
    def binary(self) -> Path:
        """The program ``java``."""
        return self.home / "bin" / _BINARY

    @property
    def major(self) -> int:
        """17 for ``17.0.15``, 8 for ``1.8.0_402``."""
        numbers = [int(n) for n in re.findall(r"\d+", self.version)[:2]] or [0]
        return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


@cache
def find_java() -> Java:
    """The first Java >= 17 of ``JAVA_HOME``, ``PATH`` and the usual folders.

    Raises:
        SetupError: SETUP-001, there is no Java or all are too old.
    """
    seen: list[Java] = []
    for home in _homes():
        version = _version(home)
        if version is None:
            continue
        java = Java(home=home, version=version)
        if java.major >= OLDEST:
            return java
        seen.append(java)
    got = f"Java {seen[0].version} in {seen[0].home}" if seen else "none"
    raise SetupError(
        "Java",
        f"version {OLDEST} or newer",
        got,
        f"Run `{install_command()}`. The embedded engine needs no Java: --engine embedded, or FLOODMARK_ENGINE=embedded.",
        code="SETUP-001",
    )


def install_command() -> str:
    """The command that installs a suitable Java on this platform."""
    if platform.system() == "Darwin":
        return f"brew install openjdk@{OLDEST}"
    if platform.system() == "Windows":
        return f"winget install EclipseAdoptium.Temurin.{OLDEST}.JRE"
    for tool, command in (
        ("apt-get", f"apt-get install -y openjdk-{OLDEST}-jre-headless"),
        ("dnf", f"dnf install -y java-{OLDEST}-openjdk-headless"),
        ("apk", f"apk add openjdk{OLDEST}-jre-headless"),
    ):
        if shutil.which(tool):
            return command
    return f"apt-get install -y openjdk-{OLDEST}-jre-headless"


def _homes() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if binary := shutil.which("java"):
        yield Path(binary).resolve().parent.parent
    for pattern in _USUAL_HOMES:
        yield from sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)


def _version(home: Path) -> str | None:
    """The version of the Java in a folder, from its ``release`` file, else from ``java -version``; None if there is no Java."""
    if not (home / "bin" / _BINARY).exists():
        return None
    release = home / "release"
    text = release.read_text("utf-8") if release.is_file() else _ask(home)
    match = re.search(r'(?:JAVA_VERSION=|version )"([^"]+)"', text)
    return match[1] if match else None


def _ask(home: Path) -> str:
    try:
        done = subprocess.run(
            [home / "bin" / _BINARY, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr
