"""Run groups of tests again and again, each time disturbed in other ways, and say which tests depend on it.

    python tests/disturbed.py [--times N] [--seed NUMBER] [--only NAME ...] [--user NAME] [GROUP ...]

Each time draws, from the seed, which it prints: the order of the tests; a time zone and a locale; a clock that jumps, forwards and back, by up to
two days, some twenty times a second (tests/support/jumping_clock); four busy processes beside the tests; and another user than root, in a copy of the
clone that belongs to that user. --only takes some of them: order zone clock load user. Where the clock jumps, tests marked `clock` are left out: they
have something happen after a time, by the clock that all processes of a machine share.
What a run printed is in build/disturbed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("order", "zone", "clock", "load", "user")
ZONES = (
    "America/St_Johns",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "Europe/Berlin",
    "Africa/Casablanca",
    "Pacific/Kiritimati",
)
LOCALES = ("C", "POSIX", "C.UTF-8", "de_DE.UTF-8", "tr_TR.UTF-8")
CLOCK = ROOT / "tests" / "support" / "jumping_clock"
BUSY = 4


@dataclass(frozen=True, slots=True)
class Draw:
    """How one run is disturbed."""

    seed: str
    kinds: tuple[str, ...]
    zone: str
    locale: str

    @classmethod
    def of(cls, seed: str, kinds: Sequence[str]) -> Draw:
        draw = random.Random(seed)
        return cls(seed, tuple(kinds), draw.choice(ZONES), draw.choice(LOCALES))

    def describe(self) -> str:
        about = {"zone": f"zone {self.zone}, locale {self.locale}", "order": f"order {self.seed}"}
        return "; ".join(about.get(kind, kind) for kind in self.kinds)

    def environment(self) -> dict[str, str]:
        added = dict(os.environ)
        if "zone" in self.kinds:
            added |= {"TZ": self.zone, "LC_ALL": self.locale}
        if "clock" in self.kinds:
            added |= {"FLOODMARK_CLOCK": self.seed, "PYTHONPATH": os.pathsep.join([str(CLOCK), *_python_path(added)])}
        return added


def _python_path(environment: Mapping[str, str]) -> list[str]:
    return [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Processes that compute beside the tests."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


@contextmanager
def clone_of(user: str) -> Iterator[Path]:
    """A copy of the clone that belongs to a user, with the packages that are installed here."""
    with tempfile.TemporaryDirectory(prefix="floodmark-as-") as folder:
        copy = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(copy)], check=True)
        shutil.chown(folder, user)
        subprocess.run(["chown", "-R", user, str(copy)], check=True)
        yield copy


def run(draw: Draw, tests: Sequence[str], user: str, report: Path) -> int:
    """One pytest process over tests; its exit status."""
    with ExitStack() as stack:
        folder = ROOT
        command = [
            sys.executable,
            "-m",
            "pytest",
            *tests,
            "-q",
            "--color=no",
            f"--junitxml={report}",
            "-p",
            "no:cacheprovider",
        ]
        command += (
            ["-p", "randomly", f"--randomly-seed={draw.seed}", "--randomly-dont-reset-seed"]
            if "order" in draw.kinds
            else []
        )
        command += ["-m", "not soak and not clock"] if "clock" in draw.kinds else []
        environment = draw.environment()
        if "user" in draw.kinds:
            folder = stack.enter_context(clone_of(user))
            report.unlink(missing_ok=True)
            report.parent.chmod(0o777)
            environment |= {
                "HOME": str(folder.parent),
                "PYTHONPATH": os.pathsep.join([str(folder / "src"), *_python_path(environment)]),
                "USER": user,
            }
            command = ["runuser", "-u", user, "--", *command]
        if "load" in draw.kinds:
            stack.enter_context(busy(BUSY))
        with report.with_suffix(".txt").open("w") as output:
            return subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode


def failed(report: Path) -> list[str]:
    """The tests that failed, as pytest takes them."""
    cases = ElementTree.parse(report).getroot().iter("testcase") if report.is_file() else []
    return [
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]


def main() -> int:
    """0 when no test failed in any run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--user", default="nobody", help="whom the tests run as, where this is root (default nobody)")
    parser.add_argument("tests", nargs="*", default=["tests/unit"], help="folders or files (default tests/unit)")
    options = parser.parse_args()
    kinds = [kind for kind in options.only if kind != "user" or os.geteuid() == 0]
    if (
        "user" in kinds
        and subprocess.run(["runuser", "-u", options.user, "--", sys.executable, "--version"], check=False).returncode
    ):
        parser.error(
            f"user {options.user} cannot run {sys.executable}: let others enter its folders, or leave 'user' out with --only"
        )
    unsteady: dict[str, list[str]] = defaultdict(list)
    folder = ROOT / "build" / "disturbed"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(options.times):
        draw = Draw.of(f"{options.seed}{number:03}", kinds)
        report = folder / f"{draw.seed}.xml"
        begun = time.monotonic()
        status = run(draw, options.tests, options.user, report)
        names = failed(report) or ([f"pytest itself, exit {status}"] if status else [])
        print(
            f"{number + 1}/{options.times} {draw.describe()}: {len(names)} failed, {(time.monotonic() - begun) / 60:.1f} min; {report.with_suffix('.txt')}",
            flush=True,
        )
        for name in names:
            unsteady[name].append(draw.describe())
    for name, draws in sorted(unsteady.items()):
        print(f"\n{name}: failed {len(draws)} of {options.times} times\n  " + "\n  ".join(draws))
    print(f"\n{len(unsteady)} tests failed in at least one of {options.times} runs")
    return int(bool(unsteady))


if __name__ == "__main__":
    sys.exit(main())
