"""A workspace on a cluster of Spark's own, whose workers see nothing of the driver but files to land; its lake is in a bucket, or in a folder that both see.

What runs there is killed: a worker with its executor, the driver, and in ``make soak`` an executor alone, as in ``test_yarn.py``. Rows are those of the embedded engine, and DuckDB's. Spark's event log says that tasks ran beside
each other and that only what was lost was computed again; a savepoint of the cluster's stream is opened under a debugger where its workspace is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import event_log
import pytest
import spark_cluster
from cluster_process import wind_model
from cluster_site import OPERATORS, Site
from s3_server import environment
from sklearn.linear_model import LinearRegression

from floodmark import models
from floodmark.lake.folder.paths import Lake

if TYPE_CHECKING:
    from s3_server import Proxy, Server


@pytest.fixture
def cluster(tmp_path: Path, s3_proxy: Proxy) -> Iterator[spark_cluster.Cluster]:
    """A cluster of two workers that reach the store."""
    with spark_cluster.cluster(tmp_path / "cluster", tmp_path / "hidden", environment(s3_proxy.url)) as running:
        yield running


def _site(cluster: spark_cluster.Cluster, lakes: str | None, **settings: str) -> Site:
    logged = event_log.SETTINGS | {"spark.eventLog.dir": str(_events(cluster))}
    return Site.made(
        cluster.hidden[0],
        cluster.shared,
        cluster.master,
        lakes=lakes,
        settings=spark_cluster.SETTINGS | spark_cluster.QUICK_SETTINGS | logged | settings,
    )


def _events(cluster: spark_cluster.Cluster) -> Path:
    folder = cluster.shared / "events"
    folder.mkdir(exist_ok=True)
    return folder


BOUNDED = ("bounded:delays", "saved:streaks")
UNBOUNDED = ("ambush:worker", "unbounded:streaks", "crash:micro_batch.before_main:2", "unbounded:windy")


@pytest.mark.parametrize(
    ("in_bucket", "steps"),
    [
        pytest.param(
            *(True, ("end", *BOUNDED, *UNBOUNDED)),
            id="bucket",
            marks=pytest.mark.feature("O1", "O2", "O4", "O6", "F12", "X13", "I5", "B5", "Z29", "Z35"),
        ),
        pytest.param(
            *(
                False,
                (
                    "end",
                    "ambush:executor",
                    *BOUNDED,
                    "bounded:streaks",
                    "bounded:windy",
                    "unbounded:delays",
                    *UNBOUNDED,
                ),
            ),
            id="folder",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_workspace_runs_on_workers_that_see_nothing_of_the_driver_and_are_killed(
    cluster: spark_cluster.Cluster, s3: Server, *, in_bucket: bool, steps: tuple[str, ...]
) -> None:
    """A helper module's function and its data file, a process function and its helper, a join; bounded and unbounded."""
    assert len(cluster.workers) > 1, "the second driver finds the one that lives"
    site = _site(cluster, s3.bucket() if in_bucket else None)
    first = site.run("spark", *steps)
    assert "unbounded:streaks" in first.stdout, first.stderr[-3000:]
    assert first.returncode < 0, first.stderr[-3000:]  # the driver was killed
    assert "secret is an argument of" not in first.stdout, first.stdout
    for victim in ("executor", "worker"):
        assert (site.shared / f"{victim}.killed").exists() == (f"ambush:{victim}" in steps)
    began = event_log.applications(_events(cluster))[0]
    began.check_repeats()
    assert began.beside(), "tasks of one stage run on both workers at the same time"
    assert began.on_paper(2) < began.on_paper(1)
    second = site.run("spark", "unbounded:windy", "land", INBOX=str(site.workspace.parent / "inbox"))
    assert "unbounded:windy" in second.stdout, second.stderr[-3000:]
    assert "CONNECTOR-210 source 'departures', folder" in second.stderr
    embedded = site.run("embedded", "end", *(f"unbounded:{name}" for name in OPERATORS), lake="embedded")
    assert embedded.returncode == 0, embedded.stderr[-3000:]
    answers = site.duckdb()
    for step in steps:
        mode, _, name = step.partition(":")
        if mode in {"bounded", "unbounded"}:
            rows = site.rows("lake-bounded" if mode == "bounded" else "lake", name)
            assert rows
            assert rows == site.rows("embedded", name)
            assert rows == answers.get(name, rows)
    _check_opened(site)


def _check_opened(site: Site) -> None:
    """The savepoint of the cluster's stream goes on here under Python's debugger, which stops in the process function and sees the state of a key."""
    code = site.workspace / "operators" / "departures.py"
    line = code.read_text().splitlines().index('        yield {"length": self.length.get(0)}') + 1
    asked = [
        f"break {code}:{line}, self.length.get(0) > 2",
        "continue",
        "print('seen', dict(origin=row['origin'], length=self.length.get(0)))",
        "clear 1",
        "continue",
        "quit",
    ]
    done = site.run("embedded", "opened:streaks", debugger="\n".join(asked))
    assert "opened:streaks" in done.stdout, done.stdout + done.stderr[-3000:]
    (seen,) = (text.split("seen ")[1] for text in done.stdout.splitlines() if "seen " in text)
    whole, opened = site.rows("lake", "streaks"), site.at(site.workspace.parent).rows("laptop", "streaks")
    assert opened[seen]
    assert opened < whole


@pytest.mark.soak
@pytest.mark.feature("M1")
@pytest.mark.parametrize("in_bucket", [True, False])
def test_a_pipeline_of_spark_ml_is_fitted_by_workers_that_see_nothing_of_the_driver(
    cluster: spark_cluster.Cluster, s3: Server, *, in_bucket: bool
) -> None:
    """It errs as the regression of scikit-learn does that is fitted here to the same rows."""
    site = _site(cluster, s3.bucket() if in_bucket else None)
    done = site.run("spark", "end", "unbounded:windy", "fitted:wind")
    assert "fitted:wind" in done.stdout, done.stdout + done.stderr[-3000:]
    lake = Lake(f"{site.lakes}/lake")
    (fitted,) = models.versions(lake, "wind")
    assert fitted.estimator.startswith("LinearRegression, pyspark")
    assert fitted.metrics == pytest.approx(wind_model(lake, "here", LinearRegression()).metrics)


@pytest.mark.soak
def test_workers_that_do_not_reach_the_bucket_are_named_before_anything_runs(
    tmp_path: Path, s3: Server, s3_proxy: Proxy
) -> None:
    """They have no credentials of their own, and floodmark sends none."""
    del s3_proxy
    with spark_cluster.cluster(tmp_path / "cluster", tmp_path / "hidden") as cluster:
        site = _site(cluster, s3.bucket())
        done = site.run("spark", "end")
    assert "SETUP-091 worker " in done.stderr, done.stderr[-3000:]
    assert done.returncode == 1
    assert "end " not in done.stdout
