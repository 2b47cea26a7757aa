"""Set this clone up in ``.venv``, one set of packages after another: ``python bootstrap.py base``, as ``make`` calls it.

A set is complete when its stamp, such as ``.venv/.base``, is newer than ``pyproject.toml`` and ``requirements.lock``. Every version comes from
``requirements.lock``. One lock holds for all sets: of two that are started at once the second waits. A set-up that was killed is begun again from
what has been fetched. Only Python's own library is imported here: nothing else is there yet.

uv installs the packages, ten times as fast as pip; ``INSTALLER=pip`` in the environment does without uv. pip's index, mirror and certificate hold for uv too.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = str(VENV / "bin" / "python")
REQUIREMENTS = ("requirements.lock", "pyproject.toml")
AT_WORK = VENV / ".at-work"
"""There while packages are installed; where it is left, some may be half there."""
OF_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}
"""Settings of pip's, and uv's name for each."""
_FULL_MEGABYTES = 50
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSet:
    """What one stamp stands for.

    Args:
        extras: of ``pyproject.toml``.
        megabytes: on disk.
        about: for people.
        java: whether Java and Delta's jars belong to it.
        includes: other sets that are complete with it.
    """

    extras: str
    megabytes: int
    about: str
    java: bool = False
    includes: tuple[str, ...] = ()


SETS = {
    "base": PackageSet(extras="demo", megabytes=760, about="the embedded engine: 250 MB to fetch"),
    "dagster": PackageSet(
        extras="demo,dagster",
        megabytes=1100,
        about="the embedded engine and Dagster: 310 MB to fetch",
        includes=("base",),
    ),
    "spark": PackageSet(
        extras="demo,spark",
        megabytes=1300,
        about="both engines: 700 MB to fetch, 450 MB of them Spark",
        java=True,
        includes=("base",),
    ),
    "dev": PackageSet(
        extras="dev",
        megabytes=2000,
        about="all packages: 1 GB to fetch, 450 MB of them Spark",
        includes=("base", "dagster"),
    ),
    "ready": PackageSet(
        extras="dev",
        megabytes=2000,
        about="all packages, Java, Delta's jars",
        java=True,
        includes=("dev", "base", "dagster", "spark"),
    ),
}
"""Two more: ``browser``, ``ready`` with Chromium, MariaDB and Redis; ``airflow``, ``base`` and beside it Airflow's own environment."""


AIRFLOW = ROOT / "floodmark-airflow"
"""The package for Airflow, with an environment of its own: Airflow's pins are not floodmark's."""


class SetupStoppedError(Exception):
    """Why the set-up stopped, for people."""


def main(name: str) -> int:
    """Complete a set; 0 when it is complete, or complete but for Chromium."""
    try:
        with _alone():
            set_up({"browser": "ready", "airflow": "base"}.get(name, name))
            if name == "airflow":
                _airflow()
            if name == "browser" and all([_chromium(), _mariadb(), _redis()]):
                (VENV / ".browser").touch()
    except SetupStoppedError as stopped:
        _say(f"\nThe set-up of .venv stopped. {stopped}")
        how = (
            "" if os.environ.get("INSTALLER") == "pip" else " With INSTALLER=pip before it, pip installs instead of uv."
        )
        _say(f"Run the same command again then: what has been fetched is kept.{how}")
        return 1
    except KeyboardInterrupt:
        _say("\nStopped. The same command goes on from what has been fetched.")
        return 130
    return 0


def set_up(name: str) -> None:
    """Complete a set.

    Raises:
        SetupStoppedError: something is missing.
    """
    chosen, stamp = SETS[name], VENV / f".{name}"
    if not any(is_complete(other) for other in (name, *includers(name))):
        _new_venv_where_needed(chosen)
        if chosen.java:
            if not _importable():
                set_up("base")  # which knows where Java is looked for
            _java()
        _say(
            f"setting up .venv, once: {chosen.about}; nothing outside .venv, ~/.cache and, for Java and Chromium, the system's packages"
        )
        _install(chosen)
        if chosen.java:
            _run("Delta's jars", [PYTHON, "-m", "floodmark.engines.spark.setup.jars"])
    stamp.touch()
    for other in chosen.includes:
        (VENV / f".{other}").touch()


def includers(name: str) -> list[str]:
    """The sets that another one is complete with."""
    return [other for other, chosen in SETS.items() if name in chosen.includes]


def is_complete(name: str) -> bool:
    """Whether the stamp of a set is there and newer than what it is made from."""
    stamp = VENV / f".{name}"
    if AT_WORK.exists() or not stamp.exists():
        return False
    return all((ROOT / source).stat().st_mtime <= stamp.stat().st_mtime for source in REQUIREMENTS)


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock of the clone."""
    with Path(__file__).open("r+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another make sets .venv up; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _new_venv_where_needed(chosen: PackageSet) -> None:
    if Path(PYTHON).exists() and not AT_WORK.exists():
        return
    if AT_WORK.exists():
        _say("an earlier set-up did not end: beginning .venv again")
        shutil.rmtree(VENV)
    if _free() < chosen.megabytes:
        message = f"No space: {ROOT} has {_free():,.0f} MB free, and {chosen.megabytes:,} MB are needed."
        raise SetupStoppedError(message)
    VENV.mkdir(exist_ok=True)
    AT_WORK.touch()
    _run("a virtual environment", [sys.executable, "-m", "venv", VENV])
    AT_WORK.unlink()


def _importable() -> bool:
    command = [PYTHON, "-c", "import floodmark"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


def _install(chosen: PackageSet) -> None:
    """The packages of a set, each at the version of ``requirements.lock``."""
    begun, is_new = time.monotonic(), not any((VENV / f".{name}").exists() for name in SETS)
    AT_WORK.touch()
    try:
        _install_with(_uv(), chosen.extras)
        if chosen.extras == "dev":
            _compile()
    except SetupStoppedError:
        if (
            not is_new and not _is_full()
        ):  # what was there is whole: an installer fetches everything before it changes anything
            AT_WORK.unlink()
        raise
    AT_WORK.unlink()
    _say(f"  packages: {time.monotonic() - begun:.0f} s")


def _install_with(uv: str | Path | None, extras: str) -> None:
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    what = [*quiet, "-c", "requirements.lock", "-e", f".[{extras}]"]
    if uv is None:
        _run("packages", [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", *what])
        return
    options = ["--python", PYTHON, "--build-constraints", "requirements.lock"]
    _run("packages", [uv, "pip", "install", *options, *what], environment=_of_pip())


def _compile() -> None:
    """Compile all packages, also those of an earlier set: tests start many processes, and none of them does it where PYTHONDONTWRITEBYTECODE is set.

    A demo compiles what it imports. uv would compile what it installs now, and pip does so.
    """
    command = [PYTHON, "-m", "compileall", "-q", "-j", "0", "-x", r"[/\\]tests?[/\\]", str(VENV / "lib")]
    # some files are no Python of this release, such as templates, and stay as they are: that is no failure
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def _airflow() -> None:
    """Airflow and floodmark's package for it, each at the version of that package's ``requirements.lock``."""
    stamp, sources = AIRFLOW / ".venv" / ".ready", [AIRFLOW / name for name in REQUIREMENTS]
    if stamp.exists() and all(source.stat().st_mtime <= stamp.stat().st_mtime for source in sources):
        return
    _say("setting up floodmark-airflow/.venv, once: Airflow: 60 MB to fetch")
    begun, uv, venv = time.monotonic(), _uv(), AIRFLOW / ".venv"
    what: list[str | Path] = ["-c", sources[0], "-e", f"{AIRFLOW}[test]"]
    if uv is None:
        _run("a virtual environment for Airflow", [sys.executable, "-m", "venv", "--clear", venv])
        _run("Airflow", [venv / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check", "-q", *what])
    else:
        _run("a virtual environment for Airflow", [uv, "venv", "-q", "--clear", "--python", sys.executable, venv])
        command = [uv, "pip", "install", "--python", venv / "bin" / "python", "--quiet", "--compile-bytecode", *what]
        _run("Airflow", command, environment=_of_pip())
    stamp.touch()
    _say(f"  packages: {time.monotonic() - begun:.0f} s")


def _uv() -> str | Path | None:
    """The uv of the machine, or of ``.venv``, where it is installed; None where pip is asked for."""
    if os.environ.get("INSTALLER") == "pip":
        return None
    uv = VENV / "bin" / "uv"
    if not uv.exists() and (of_machine := shutil.which("uv")):
        return of_machine
    if not uv.exists():
        options = ["--disable-pip-version-check", "--quiet", "--retries", "1", "--only-binary", "uv"]
        _run("uv", [PYTHON, "-m", "pip", "install", *options, "-c", "requirements.lock", "uv"], shows=False)
    return uv


def _of_pip() -> dict[str, str]:
    """Settings of uv's, as pip has them."""
    command = [PYTHON, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    settings = dict(line.split("=", 1) for line in listed if "=" in line)
    named = {key.split(".")[-1]: value.strip("'\"") for key, value in settings.items()}
    return {of_uv: named[of_pip] for of_pip, of_uv in OF_PIP.items() if of_pip in named and of_uv not in os.environ}


def _java() -> None:
    """Java 17 or newer, installed where that is allowed."""
    find = [PYTHON, "-c", "from floodmark.engines.spark.setup.java import find_java; find_java()"]
    if subprocess.run(find, cwd=ROOT, capture_output=True, check=False).returncode == 0:
        return
    if _may_install():
        _say("installing Java 17 with apt-get")
        for version in (17, 21):  # Debian 13 has no 17
            if _apt_get(f"openjdk-{version}-jre-headless"):
                return
    show = "from floodmark.engines.spark.setup.java import install_command; print(install_command())"
    command = subprocess.run([PYTHON, "-c", show], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    message = (
        f"Spark needs Java 17 or newer, and there is none: run `{command}` as root. make demo and make up need no Java."
    )
    raise SetupStoppedError(message)


def _chromium() -> bool:
    """Chromium for the browser tests, installed where that is allowed."""
    if any(map(shutil.which, CHROMIUM)):
        return True
    if _may_install():
        _say("installing Chromium with apt-get")
        if _apt_get("chromium"):
            return True
    _say(
        "\n*** NO CHROMIUM: the browser tests will FAIL. Install it (as root: apt-get install chromium),"
        " or leave them out: .venv/bin/python -m pytest tests -m 'not soak and not browser'\n"
    )
    return False


def _mariadb() -> bool:
    """MariaDB's server for the tests of databases, installed where that is allowed."""
    if shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
        return True
    if _may_install():
        _say("installing MariaDB with apt-get")
        if _apt_get("mariadb-server-core"):
            return True
    _say("\n*** NO MARIADB: tests of databases will FAIL. Install it (as root): apt-get install mariadb-server-core\n")
    return False


def _redis() -> bool:
    """Redis' server for the tests of deliveries to it, installed where that is allowed."""
    if shutil.which("redis-server"):
        return True
    if _may_install():
        _say("installing Redis with apt-get")
        if _apt_get("redis-server"):
            return True
    _say("\n*** NO REDIS: tests of deliveries to it will FAIL. Install it (as root): apt-get install redis-server\n")
    return False


def _may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _apt_get(package: str) -> bool:
    """Install a package of Debian's; what an interrupted run has left half done is finished before."""
    wait = ["-o", "DPkg::Lock::Timeout=600"]
    commands = (
        ["dpkg", "--configure", "-a"],
        ["apt-get", *wait, "-qq", "update"],
        ["apt-get", *wait, "-qq", "-y", "--no-install-recommends", "install", package],
    )
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = [
        subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
        for command in commands
    ]
    return done[-1].returncode == 0


def _run(
    what: str, command: Sequence[str | Path], *, environment: dict[str, str] | None = None, shows: bool = True
) -> None:
    """Run a command of the set-up.

    Args:
        what: what it makes, for people.
        command: the command.
        environment: added to this process's.
        shows: whether what it prints is shown while it runs; else only in an error that has no other explanation.

    Raises:
        SetupStoppedError: the command failed.
    """
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | (environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=not shows,
        check=False,
    )
    if done.returncode:
        printed = done.stderr.decode(errors="replace").strip() if done.stderr else "What was printed above says why."
        message = f"Installing {what} failed. {_reason() or printed}"
        raise SetupStoppedError(message)


def _reason() -> str | None:
    """What is wrong with the machine; None if nothing is seen."""
    if _is_full():
        return f"No space: {ROOT} has {_free():.0f} MB free."
    index = _index() if Path(PYTHON).exists() else ""
    if not index:
        return None
    try:
        urllib.request.urlopen(index, timeout=10).close()  # noqa: S310 - of the user's own settings
    except urllib.error.HTTPError:
        pass  # it answers
    except OSError as error:
        return f"No network: {index} cannot be reached ({getattr(error, 'reason', error)})."
    return None


def _index() -> str:
    """Where packages come from: as uv or pip is set, else pip's own default."""
    index = os.environ.get("UV_DEFAULT_INDEX") or _of_pip().get("UV_DEFAULT_INDEX")
    show = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"  # pip has no public word for it
    return index or subprocess.run([PYTHON, "-c", show], capture_output=True, text=True, check=False).stdout.strip()


def _free() -> float:
    """Megabytes."""
    return shutil.disk_usage(ROOT).free / 1e6


def _is_full() -> bool:
    return _free() < _FULL_MEGABYTES


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
