"""Shared fixtures: one Spark session per test process, a fresh lake per test."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from floodmark.spec.workspace import Settings

SOAKS = "FLOODMARK_SEEDS" in os.environ
"""Whether this is ``make soak``."""
# a busy machine is no failure, and what fails is what a change has broken: make test draws the same examples each time, make soak others and more
settings.register_profile(
    "floodmark",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not SOAKS,
    max_examples=150 if SOAKS else 15,
)
settings.load_profile("floodmark")

if TYPE_CHECKING:
    import kafka_broker
    import s3_server
    import search_server
    from pyspark.sql import SparkSession

    from floodmark.control.processes.engine import Computing
    from floodmark.engines.embedded.sail.session import Sail
    from floodmark.lake.folder.paths import Lake


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of this process, with one state partition, which costs a quarter less.

    Two have the tests of how keys are divided, which set them, all that runs by ``floodmark.testing.Run``, and what runs in processes of its own.
    """
    import forked
    from java_flags import ROOMY, UNVERIFIED

    from floodmark.engines.spark.session.builder import spark_session

    options = {"spark.driver.extraJavaOptions": " ".join((*UNVERIFIED, *ROOMY))}
    session = spark_session(app="tests", shuffle_partitions=1, memory="1536m", extra=options)
    session.sparkContext.pythonExec = forked.python()  # two seconds of imports less for each stream with state
    yield session
    session.stop()


@pytest.fixture
def read_by_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units are read by Spark's workers, however few bytes or rows they have."""
    from floodmark.engines.spark.landing import workers

    monkeypatch.setattr(workers, "_AT_HAND_BYTES", 0)
    monkeypatch.setattr(workers, "_AT_HAND_ROWS", 0)


@pytest.fixture(scope="session", autouse=True)
def _whole_files() -> Iterator[None]:
    """Files that tests write are complete at once: no end of input waits for their age but where ``inbox_clock`` says so."""
    from floodmark.connectors.readers import files

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "END_AGE", 0)
        yield


@pytest.fixture(scope="session")
def embedded() -> Computing:
    """The embedded engine."""
    import engines

    return engines.embedded()


@pytest.fixture(scope="session")
def sail() -> Sail:
    """The server of this process, in little memory."""
    from floodmark.engines.embedded.sail.session import shared

    return shared(300)


@pytest.fixture(scope="session")
def s3() -> Iterator[s3_server.Server]:
    """The S3 server of this process's tests, on loopback, in memory."""
    import s3_server

    with s3_server.running() as server:
        yield server


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka_broker.Broker]:
    """The Kafka broker of this process's tests, on loopback."""
    import kafka_broker

    with kafka_broker.running(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def search(tmp_path_factory: pytest.TempPathFactory) -> Iterator[search_server.Server]:
    """The OpenSearch server of this process's tests, on loopback."""
    import search_server

    with search_server.server(tmp_path_factory.mktemp("search")) as running:
        yield running


@pytest.fixture(scope="session")
def _proxy(s3: s3_server.Server) -> Iterator[s3_server.Proxy]:
    import s3_server

    with s3_server.proxied(s3) as proxy:
        yield proxy


@pytest.fixture
def s3_proxy(_proxy: s3_server.Proxy, monkeypatch: pytest.MonkeyPatch) -> s3_server.Proxy:
    """The proxy before the S3 server, through which this process and its children reach the server; without faults at first."""
    import s3_server

    _proxy.plan()
    for name, value in s3_server.environment(_proxy.url).items():
        monkeypatch.setenv(name, value)
    return _proxy


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Computing:
    """The engines of ``@pytest.mark.engines`` in turn."""
    from floodmark.control.processes.engine import OnSpark

    if request.param == "embedded":
        found: Computing = request.getfixturevalue("embedded")
        return found
    return OnSpark(Settings(), "tests", lambda _: nullcontext(), request.getfixturevalue("spark"))


@pytest.fixture(scope="session")
def engine_name(request: pytest.FixtureRequest) -> str:
    """As ``engine``, for a test that leaves computing to other processes."""
    return str(request.param)


def _engine(item: pytest.Item) -> str | None:
    """The engine of a test that asks for one."""
    given = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return given.get("engine", given.get("engine_name"))


_STARTS_SPARK = {"spark", "compiled"}
"""Fixtures that start Java."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for an engine runs on the embedded one, and on Spark in ``make soak``, or as its mark says."""
    for fixture in {"engine", "engine_name"}.intersection(metafunc.fixturenames):
        mark = metafunc.definition.get_closest_marker("engines")
        always, soak = (mark.args, mark.kwargs.get("soak", ())) if mark else (("embedded",), ("spark",))
        marks = {"spark": [pytest.mark.spark], "embedded": []}
        params = [pytest.param(name, marks=marks[name]) for name in always]
        params += [pytest.param(name, marks=[*marks[name], pytest.mark.soak]) for name in soak]
        metafunc.parametrize(fixture, params, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a test costs follows from the fixtures it asks for.

    A test that draws examples is one of ``make soak`` too, which draws others.

    The mark ``engines`` of a parameter says which engine of the test's is one of ``make soak`` for that parameter.
    """
    parametrised = defaultdict[tuple[str, str], list[pytest.Item]](list)
    for item in items:
        if _engine(item) in {name for mark in item.iter_markers("engines") for name in mark.kwargs.get("soak", ())}:
            item.add_marker(pytest.mark.soak)
        if SOAKS and getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.soak)
        if item.get_closest_marker("few") and not item.get_closest_marker("soak"):
            parametrised[item.parent.nodeid, item.originalname].append(item)
        names = set(getattr(item, "fixturenames", ()))
        if not names.isdisjoint(_STARTS_SPARK):
            item.add_marker(pytest.mark.spark)
        if "page" in names:
            item.add_marker(pytest.mark.browser)

    for several in parametrised.values():
        _leave_repeats_to_soak(several)


def _leave_repeats_to_soak(items: list[pytest.Item]) -> None:
    """Of a test's parameters, as many as the mark ``few`` says run in every run, spread over all of them, and each by which alone a behaviour is shown."""
    shown, always = set[str](), list[pytest.Item]()
    for item in items:
        ids = {one for mark in item.callspec.marks if mark.name == "feature" for one in mark.args}
        if not ids <= shown:
            shown |= ids
            always.append(item)
    others = [item for item in items if item not in always]
    wanted = max(0, items[0].get_closest_marker("few").args[0] - len(always))
    always += [others[number * len(others) // wanted] for number in range(min(wanted, len(others)))]
    for item in items:
        if item not in always:
            item.add_marker(pytest.mark.soak)


def pytest_configure() -> None:
    """Ctrl-C ends the tests however a shell has started them: one that runs them in the background has them ignore SIGINT.

    What a test starts would ignore it too, and SIGTERM behind a test that runs a job: Dagster has SIGTERM do what SIGINT does.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """From here on look for cycles seldom, as the program does, and never among what the tests have imported: a tenth of their time."""
    gc.set_threshold(50_000, 20, 100)
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """The end looks among everything: else some libraries complain of what was not freed."""
    gc.unfreeze()


_FILE = pytest.StashKey[Path]()
"""The file of the last test that found Java running."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Whatever the test before has set, each begins with one state partition: before its fixtures, which may run streams.

    Delta keeps 2 MB of each table for an hour, hundreds of MB in the hundreds of tables of a group; with a file of tests those of the one before go.
    """
    if _has_java():
        from pyspark.sql import SparkSession

        session = SparkSession._instantiatedSession  # the fixture's, whichever is active now
        if session is not None:
            session.conf.set("spark.sql.shuffle.partitions", "1")
            if item.session.stash.get(_FILE, None) != item.path:
                item.session.stash[_FILE] = item.path
                session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """A test that starts Java in this process says so by its mark."""
    before = _has_java()
    found = yield
    if _has_java() and not before and item.get_closest_marker("spark") is None:
        pytest.exit(f"{item.nodeid} starts Java: mark it with @pytest.mark.spark", returncode=1)
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[object]:
    """A test that is to run blocks of pages (tests/docs/blocks.toml) has run them once it has passed."""
    import console_pages
    import page_runs

    test = item.nodeid.partition("[")[0]
    console_pages.RAN.clear()
    result = yield
    given = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    assert page_runs.unrun(page_runs.claims_of(test), given) == [], "tests/docs/blocks.toml says that this test runs it"
    return result


def _has_java() -> bool:
    spark = sys.modules.get("pyspark.core.context")
    return spark is not None and spark.SparkContext._gateway is not None


@pytest.fixture(scope="module")
def compiled(spark: SparkSession) -> Iterator[None]:
    """Spark compiles what it runs here, as it does for users, where the run of the group has it interpret (tests/run.py)."""
    wanted = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake of the test's own."""
    from floodmark.lake.folder.paths import Lake

    return Lake(str(tmp_path / "lake"))


@pytest.fixture(scope="session")
def flights_inbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four days of flights, about 3,300 rows, in 20 files."""
    from flights import write_small_inbox

    return write_small_inbox(tmp_path_factory.mktemp("flights"), days=4, pieces=5)


@pytest.fixture(scope="session")
def landed(embedded: Computing, flights_inbox: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake whose log holds the four days in 20 commits, and their end."""
    from flights import land_all

    from floodmark.lake.folder.paths import Lake

    lake = Lake(str(tmp_path_factory.mktemp("landed")))
    land_all(embedded, flights_inbox, lake, end=True)
    return lake
