"""Run the tests group by group, each group in one pytest process (so in one Spark session).

    python tests/run.py [--workers N] [--processors] [GROUP ...]
    python tests/run.py --fast
    python tests/run.py --soak PART/PARTS [--minutes N]

A group is a folder under tests/, or two; a long one is run in parts, by files. Four run at a time; what a group prints comes whole when it ends,
and is in build/tests/GROUP.txt until then. What the tests import is compiled before, so that none of the processes they start does it again. At the end each failed test is named again, with the end of what it says. In CI a skip is a failure. A part of the soak tests
runs in one process; parts are about equally long by the seconds in tests/soak_seconds.json. --fast runs what needs neither Java nor a
browser nor a server: unit tests, in parts beside each other, and those of the pages. With --minutes the part ends at its first
failure, or is cut after N minutes, which is no failure. With --processors build/tests/GROUP.csv says what each test took of the processors
(tests/support/cpu_seconds.py).
"""

from __future__ import annotations

import argparse
import compileall
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from zlib import crc32

ROOT = Path(__file__).resolve().parent.parent
PRINTED = ROOT / "build" / "tests"
GROUPS = ("crash+lifecycle", "spark", "orchestration", "embedded", "cli", "unit", "property", "docs")
"""The longest first, so that all lanes are busy to the end; ``unit`` comes in parts, last; ``embedded``, which mostly waits, in two. Folders joined by ``+`` share one Java, which is warm
for the second one: to start and warm up Java costs half a minute of processor time."""
NOTHING_COLLECTED = 5
SECONDS_TO_STOP = 60
LINES_OF_A_FAILURE = 25
"""At the end of all, once more: a record of the run may keep only its last lines."""
PARTS = {"embedded": 2, "unit": 4}
"""Groups whose files are dealt to parts that run by themselves: small ones at the end keep all lanes busy."""
COMPILED = ("src", "tests/support", "tests/crash", "demo", "operators", "assets", "resources", "definitions")
FAST = ("docs", "unit")
"""Groups of ``--fast``."""
INTERPRETED = {"spark", "crash", "lifecycle", "orchestration", "cli"}
"""Groups of many queries over few rows, where Spark's compiling of what it runs is a fifth of the time. The others compile, and so does
what asks for the fixture ``compiled``: both modes over all operators, and in ``make soak`` the transcripts."""
NOT_COMPILED = "--conf spark.sql.codegen.wholeStage=false --conf spark.sql.codegen.factoryMode=NO_CODEGEN pyspark-shell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one group came to."""

    group: str
    status: int
    seconds: float
    passed: int
    failed: int
    skipped: int
    output: str
    failures: dict[str, str]
    """Test -> the last lines of what it failed with."""


def run(group: str, part: str = "", *, fast: bool = False, counts: bool = False) -> Result:
    """One pytest process over one group, or over a part of it, such as ``1/2``; with ``counts`` below one that counts its processor seconds."""
    begun = time.monotonic()
    report, told, table = (PRINTED / f"{group}{part[:1]}.{kind}" for kind in ("xml", "txt", "csv"))
    report.unlink(missing_ok=True)
    command = [
        sys.executable,
        *(["tests/support/cpu_seconds.py", str(table)] if counts else ["-m", "pytest"]),
        *_files(group, part),
        "-q",
        "--color=no",
        "--durations=8",
        f"--junitxml={report}",
    ]
    command += ["-m", "not soak and not spark and not browser"] if fast else []
    environment = os.environ | ({"PYSPARK_SUBMIT_ARGS": NOT_COMPILED} if _interpreted(group) else {})
    with told.open("w") as output:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    cases = _cases(report)
    tests, failed, skipped = _counts(cases)
    printed = told.read_text(errors="replace")
    failures = _failures(cases)
    if done.returncode not in {0, NOTHING_COLLECTED} and not failures:  # pytest itself has ended
        failures = {f"tests/{group}": _end(printed)}
    return Result(
        group=f"{group} {part}".strip(),
        status=done.returncode,
        seconds=time.monotonic() - begun,
        passed=tests - failed - skipped,
        failed=failed or int(done.returncode not in {0, NOTHING_COLLECTED}),
        skipped=skipped,
        output=printed,
        failures=failures,
    )


def soak(part: str, minutes: float | None) -> int:
    """One pytest process over a part of the soak tests, such as ``3/40``; pytest's exit status, 0 where it was cut."""
    group, parts = part.split("/")
    command = [sys.executable, "-m", "pytest", "tests", "-m", "soak", "-v", "--color=no", "--durations=0"]
    command += ["--splits", parts, "--group", group, "--splitting-algorithm", "least_duration"]
    command += ["--durations-path", str(ROOT / "tests" / "soak_seconds.json")]
    command += [f"--hypothesis-seed={crc32(os.environ.get('FLOODMARK_SEEDS', '').encode())}"]
    if minutes is None:
        return _soak(command, apart=False).wait()
    pytest = _soak([*command, "--exitfirst"], apart=True)  # so that what is cut had no failure
    try:
        return pytest.wait(minutes * 60)
    except subprocess.TimeoutExpired:
        print(f"cut after {minutes:g} minutes, without a failure until then", flush=True)
    pytest.send_signal(signal.SIGINT)  # its fixtures stop what they started
    try:
        pytest.wait(SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        os.killpg(pytest.pid, signal.SIGKILL)
        pytest.wait()
    return 0


def _soak(command: list[str], *, apart: bool) -> subprocess.Popen[bytes]:
    """pytest begun; ``apart``, with a process group of its own, no Ctrl-C reaches it."""
    environment = os.environ | {"PYSPARK_SUBMIT_ARGS": NOT_COMPILED}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, start_new_session=apart)


def _cases(report: Path) -> list[ElementTree.Element]:
    """The tests of a report; none where pytest was killed before it has written it, or within."""
    try:
        return list(ElementTree.parse(report).getroot().iter("testcase"))
    except (FileNotFoundError, ElementTree.ParseError):
        return []


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"


def _wrong(case: ElementTree.Element) -> list[ElementTree.Element]:
    return [*case.iter("failure"), *case.iter("error")]


def _counts(cases: Sequence[ElementTree.Element]) -> tuple[int, int, int]:
    """Tests, failures and skips; an expected failure is neither."""
    failed = sum(bool(_wrong(case)) for case in cases)
    skips = [skip for case in cases if (skip := case.find("skipped")) is not None]
    return len(cases), failed, sum(skip.get("type") != "pytest.xfail" for skip in skips)


def _failures(cases: Sequence[ElementTree.Element]) -> dict[str, str]:
    return {
        _name(case): _end("\n".join(f"{one.get('message')}\n{one.text}" for one in wrong))
        for case in cases
        if (wrong := _wrong(case))
    }


def _end(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-LINES_OF_A_FAILURE:])


def _parts(group: str) -> list[tuple[str, str]]:
    parts = PARTS.get(group, 1)
    return [(group, f"{number}/{parts}" if parts > 1 else "") for number in range(1, parts + 1)]


def _files(group: str, part: str) -> list[str]:
    """What pytest collects: the folders of a group, or the files of a part of it, which no other part imports."""
    if not part:
        return [f"tests/{folder}" for folder in group.split("+")]
    number, parts = map(int, part.split("/"))
    files = sorted((ROOT / "tests" / group).glob("**/test_*.py"))
    return [str(path.relative_to(ROOT)) for path in files[number - 1 :: parts]]


def _interpreted(group: str) -> bool:
    """Whether Spark interprets what it runs in a group."""
    return not INTERPRETED.isdisjoint(group.split("+"))


def _compile() -> None:
    """Also where processes write no compiled code, as PYTHONDONTWRITEBYTECODE has it, they read what is there.

    pytest compiles Hypothesis by itself, a second in each process that finds it not compiled.
    """
    for name in COMPILED:
        compileall.compile_dir(ROOT / name, quiet=1, workers=0)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "tests/docs/test_parity_page.py"]
    subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=False)


@contextmanager
def _no_class_archive() -> Iterator[None]:
    """Have no session build Spark's class archive: most Javas of a run have started before it is there, and the build costs more than it saves the others.

    A clone that has the archive uses it; a session outside of a run builds it.
    """
    from filelock import Timeout

    from floodmark.engines.spark.setup.archive import building
    from floodmark.engines.spark.setup.home import cache_folder

    with ExitStack() as held:
        with suppress(Timeout):  # another process builds it already
            held.enter_context(building(cache_folder()))
        yield


def _show(results: Iterable[Result]) -> list[Result]:
    shown = []
    for result in results:
        print(f"\n===== tests/{result.group}: {result.seconds:.0f} s\n{result.output}", flush=True)
        shown.append(result)
    return shown


def main() -> int:
    """0 when something ran and nothing failed."""
    existing = [name for name in GROUPS if any((ROOT / folder).glob("**/test_*.py") for folder in _files(name, ""))]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--workers",
        type=int,
        default=4,
        help="groups at a time (default 4: two of them mostly wait, for Dagster or for what they kill)",
    )
    parser.add_argument("groups", nargs="*", default=existing, help=f"of {', '.join(existing)}")
    parser.add_argument("--fast", action="store_true", help="without Java and without a browser, within three minutes")
    parser.add_argument("--processors", action="store_true", help="count the processor seconds of each test, on Linux")
    parser.add_argument("--soak", metavar="PART/PARTS", help="a part of the soak tests instead, such as 3/40")
    parser.add_argument("--minutes", type=float, help="cut the part of the soak tests after so many minutes")
    options = parser.parse_args()
    _compile()
    if options.soak:
        return soak(options.soak, options.minutes)
    jobs_of = [one for name in (FAST if options.fast else options.groups) for one in _parts(name)]
    print(f"groups: {', '.join(dict.fromkeys(name for name, _ in jobs_of))}", flush=True)
    PRINTED.mkdir(parents=True, exist_ok=True)
    archive = _no_class_archive() if any(_interpreted(name) for name, _ in jobs_of) else nullcontext()
    with archive, ThreadPoolExecutor(options.workers) as pool:
        jobs = [pool.submit(run, name, part, fast=options.fast, counts=options.processors) for name, part in jobs_of]
        results = _show(job.result() for job in as_completed(jobs))
    print("\nminutes per group")
    for result in sorted(results, key=lambda r: -r.seconds):
        print(
            f"  {result.group:15} {result.seconds / 60:5.1f}  {result.passed} passed, {result.failed} failed, {result.skipped} skipped"
        )
    passed, failed, skipped = (sum(getattr(r, name) for r in results) for name in ("passed", "failed", "skipped"))
    skips_fail = os.environ.get("CI") == "true" and skipped > 0
    if skips_fail:
        print("in CI a skipped test is a failure")
        failed, skipped = failed + skipped, 0
    for test, text in (item for result in results for item in result.failures.items()):
        print(f"\n----- {test}\n{text}")
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    return int(failed > 0 or passed == 0)


if __name__ == "__main__":
    sys.exit(main())
