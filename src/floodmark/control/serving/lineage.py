"""Events of OpenLineage about streams, if an address is set as its standard says. Needs ``floodmark[openlineage]``.

They are told from the control store: a driver that was killed has its FAIL, too. A run is one driver; START once it has read something, RUNNING every
few minutes, as a backend cannot take an event for each micro-batch.
"""

# ruff: noqa: PLC0415 - imported only where an address is set

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from floodmark.control.state.measures import measured
from floodmark.control.state.records import Deployment, Driver
from floodmark.control.state.store import Store
from floodmark.core.errors import FloodmarkError, SetupError
from floodmark.spec.values.run import ReadTo

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

ADDRESS = "OPENLINEAGE_URL"
"""Environment variable with the address of a backend. Source: OpenLineage, Python client."""
MINUTES = "FLOODMARK_OPENLINEAGE_MINUTES"
"""Environment variable with the minutes between two RUNNING events of a stream; 5 by default."""
_POLL_SECONDS = 2.0
_FINAL = ("COMPLETE", "FAIL")


@dataclass(slots=True)
class Lineage:
    """Tells of the drivers of all streams.

    Args:
        store: the control store.
        emit: sends an event.
        every: seconds between two RUNNING events of a driver.
        since: drivers that ended before that time are not told of, s since 1970.
    """

    store: Store
    emit: Callable[[RunEvent], None]
    every: float = 300.0
    since: float = field(default_factory=time.time)
    _told: dict[int, tuple[str, float]] = field(default_factory=dict)
    """Driver -> its last event, and the time of that event; of the newest driver of each stream alone."""

    def look(self, now: float) -> None:
        """Tell what has changed until a time, s since 1970."""
        seen = set[int]()
        for deployment in self.store.deployments():
            for driver in self.store.drivers(deployment.stream, 2)[::-1]:
                seen.add(driver.id)
                kind = self._due(driver, self._told.get(driver.id, ("", 0.0)), now)
                if kind:
                    self.emit(self._event(deployment, driver, kind, now))
                    self._told[driver.id] = kind, now
        self._told = {driver: last for driver, last in self._told.items() if driver in seen}

    def _due(self, driver: Driver, last: tuple[str, float], now: float) -> str:
        """The kind of event that is due; empty for none."""
        kind, at = last
        if kind in _FINAL or (driver.ended_at is not None and driver.ended_at < self.since):
            return ""
        if not kind:
            return "START" if driver.batch is not None else ""
        if driver.ended_at is not None:
            return "FAIL" if driver.state == "crashed" else "COMPLETE"
        return "RUNNING" if now - at >= self.every else ""

    def _event(self, deployment: Deployment, driver: Driver, kind: str, now: float) -> RunEvent:
        from openlineage.client import event_v2 as events
        from openlineage.client.facet_v2 import error_message_run, job_type_job

        counted = measured(self.store, deployment.stream)
        read = next((one.read for one in reversed(counted.recent) if one.read), {})
        facets: dict[str, Any] = {}
        if kind == "FAIL":
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(driver.reason or "", "python")
        job_type = {"source": "LANDING", "operator": "OPERATOR", "delivery": "DELIVERY"}[deployment.kind]
        run = uuid.uuid5(uuid.NAMESPACE_URL, f"floodmark/{deployment.lake}/{deployment.operator}/{driver.epoch}")
        return events.RunEvent(
            eventTime=datetime.fromtimestamp(now, UTC).isoformat(),
            eventType=events.RunState(kind),
            producer=f"urn:floodmark:{version('floodmark')}",
            run=events.Run(runId=str(run), facets=facets),
            job=events.Job(
                namespace=f"floodmark-{deployment.environment}",
                name=deployment.operator,
                facets={"jobType": job_type_job.JobTypeJobFacet("STREAMING", "FLOODMARK", job_type)},
            ),
            inputs=[_input(path, position) for path, position in read.items()],
            outputs=[_output(path) for path in _written(deployment, counted.totals.rows)],
        )


def _input(path: str, position: ReadTo) -> Any:
    """A table that is read, in the version up to which it is read."""
    from openlineage.client import event_v2 as events
    from openlineage.client.facet_v2 import dataset_version_dataset

    namespace, name = _named(path)
    read = dataset_version_dataset.DatasetVersionDatasetFacet(str(position[0]))
    return events.InputDataset(namespace=namespace, name=name, facets={"version": read})


def _output(path: str) -> Any:
    from openlineage.client import event_v2 as events

    namespace, name = _named(path)
    return events.OutputDataset(namespace=namespace, name=name)


def _written(deployment: Deployment, rows: Mapping[str, int]) -> Iterator[str]:
    """Paths of the tables that a stream writes; none of a delivery, which reads the table that it counts."""
    if deployment.kind == "delivery":
        return
    folder = "logs" if deployment.kind == "source" else "outputs"
    yield from (f"{deployment.lake}/{folder}/{table}" for table in rows)


def _named(path: str) -> tuple[str, str]:
    """(path or URI of a table) -> namespace and name. Source: OpenLineage, naming of datasets."""
    if "://" not in path:
        return "file", path
    scheme, _, address = path.partition("://")
    bucket, _, key = address.partition("/")
    return f"{scheme.replace('s3a', 's3')}://{bucket}", key


@contextmanager
def telling(store: Store, say: Callable[[str], None], environment: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Tell of the streams of a store in a thread while the context lasts, if an address is set.

    Args:
        store: the control store.
        say: called with failures, each once.
        environment: environment variables.

    Raises:
        SetupError: SETUP-075, the minutes between two events are no positive number.
    """
    if not environment.get(ADDRESS) or environment.get("OPENLINEAGE_DISABLED", "").lower() == "true":
        yield
        return
    every = 60 * _minutes(environment.get(MINUTES, "5"))
    try:
        client = _client()
    except ImportError as error:
        say(f"no lineage is told, as {error.name} is missing: pip install 'floodmark[openlineage]'")
        yield
        return
    lineage = Lineage(store, client.emit, every)
    over = threading.Event()
    thread = threading.Thread(target=_tell, args=(lineage, say, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < float("inf"):
        fix = f"Set {MINUTES}=5, or leave it out."
        raise SetupError("events of lineage", "minutes between two of them", repr(text), fix, code="SETUP-075")
    return minutes


def _client() -> OpenLineageClient:
    from openlineage.client import OpenLineageClient

    return OpenLineageClient()


def _tell(lineage: Lineage, say: Callable[[str], None], over: threading.Event) -> None:
    reported = ""
    while True:
        last = over.wait(_POLL_SECONDS)
        try:
            lineage.look(time.time())
            reported = ""
        except FloodmarkError:  # the store is unreachable: the supervisor says so
            pass
        except Exception as error:  # noqa: BLE001 - whatever a backend answers, streams run
            text = f"lineage: {type(error).__name__}: {error}"
            if text != reported:
                say(reported := text)
        if last:
            return
