"""A workspace on a cluster of Hadoop's YARN, whose containers see nothing of the driver but files to land. An executor is killed; rows are those of the embedded engine, and DuckDB's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yarn_cluster
from cluster_site import Site
from s3_server import environment

from floodmark.engines.spark.setup.home import cache_folder, home

if TYPE_CHECKING:
    from s3_server import Proxy, Server


@pytest.fixture
def cluster(tmp_path: Path, s3_proxy: Proxy, nodes: int) -> Iterator[yarn_cluster.YarnCluster]:
    """A cluster whose containers reach the store."""
    variables = environment(s3_proxy.url)
    with yarn_cluster.cluster(tmp_path / "cluster", tmp_path / "hidden", variables, nodes=nodes) as running:
        yield running


RUNS = ("bounded:delays", "unbounded:streaks", "unbounded:windy")


@pytest.mark.parametrize(
    ("in_bucket", "nodes", "runs"),
    [
        pytest.param(*(False, 1, RUNS[:1]), id="folder", marks=pytest.mark.feature("O1")),
        pytest.param(*(True, 2, RUNS), id="bucket", marks=pytest.mark.soak),
    ],
)
def test_a_workspace_runs_in_containers_that_see_nothing_of_the_driver(
    cluster: yarn_cluster.YarnCluster, s3: Server, *, in_bucket: bool, runs: tuple[str, ...]
) -> None:
    site = Site.made(
        cluster.hidden[0],
        cluster.shared,
        "yarn",
        lakes=s3.bucket() if in_bucket else None,
        settings=cluster.settings,
        variables={
            "HADOOP_CONF_DIR": str(cluster.configuration),
            "SPARK_HOME": str(home(cache_folder())),  # as a session of this machine leaves it to what it starts
        },
    )
    done = site.run("spark", "end", "ambush:executor", *runs)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert (site.shared / "executor.killed").exists()
    embedded = site.run("embedded", "end", *runs, lake="embedded")
    assert embedded.returncode == 0, embedded.stderr[-3000:]
    answers = site.duckdb()
    for mode, _, name in (step.partition(":") for step in runs):
        suffix = "-bounded" if mode == "bounded" else ""
        rows = site.rows(f"lake{suffix}", name)
        assert rows
        assert rows == site.rows(f"embedded{suffix}", name)
        assert rows == answers.get(name, rows)
