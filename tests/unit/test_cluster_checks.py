"""What is said of a cluster that cannot be used: its master, executors that do not come, and workers with other versions."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from ports import refusing_port

from floodmark.core.errors import SetupError
from floodmark.engines.spark.session import builder, cluster, executors
from floodmark.engines.spark.session.executors import Launches
from floodmark.engines.spark.setup import hadoop, home
from floodmark.engines.spark.setup.master import is_cluster, reach_master

_LOG = b"2026-11-28 18:27:31 INFO StandaloneAppClient$ClientEndpoint: Executor "


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", False),
        ("local[2]", False),
        ("local-cluster[2,1,1024]", True),
        ("spark://host:7077", True),
        ("yarn", True),
    ],
)
def test_a_cluster_is_any_master_but_local(master: str, expected: bool) -> None:
    assert is_cluster(master) is expected


def test_a_master_that_does_not_answer_is_refused_before_java_starts() -> None:
    with refusing_port() as port:
        expected = rf"SETUP-082 Spark master spark://127.0.0.1:{port}: .*got 127.0.0.1:{port}: .*refused"
        with pytest.raises(SetupError, match=expected):
            reach_master(f"spark://127.0.0.1:{port}")


def test_one_of_several_masters_is_enough() -> None:
    with refusing_port() as port, socket.create_server(("127.0.0.1", 0)) as answering:
        reach_master(f"spark://127.0.0.1:{port},127.0.0.1:{answering.getsockname()[1]}")


_SITE = "<configuration>{}</configuration>"
_PROPERTY = "<property><name>yarn.resourcemanager.{}</name><value>{}</value></property>"


def _site(folder: Path, monkeypatch: pytest.MonkeyPatch, **properties: str) -> None:
    """Hadoop's configuration in a folder, which the environment names."""
    lines = (
        _PROPERTY.format(name.replace("_", ".").replace("rm.ids", "rm-ids"), value)
        for name, value in properties.items()
    )
    (folder / "yarn-site.xml").write_text(_SITE.format("".join(lines)))
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(folder))


@pytest.fixture
def port() -> Iterator[int]:
    """At which somebody answers."""
    with socket.create_server(("127.0.0.1", 0)) as answering:
        yield int(answering.getsockname()[1])


def test_a_resource_manager_that_does_not_answer_is_refused_before_java_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    with refusing_port() as closed:
        refused = rf"SETUP-082 Spark master yarn: .*got 127.0.0.1:{closed}: .*refused"
        _site(tmp_path, monkeypatch, address=f"127.0.0.1:{closed}")
        with pytest.raises(SetupError, match=refused):
            reach_master("yarn")
        several = {"ha_rm_ids": "one, two", "address_one": f"127.0.0.1:{closed}", "address_two": f"127.0.0.1:{port}"}
        _site(tmp_path, monkeypatch, ha_enabled="true", **several)
        reach_master("yarn")
        _site(tmp_path, monkeypatch, address=f"127.0.0.1:{closed}", **several)
        with pytest.raises(SetupError, match=refused):  # as Hadoop's clients, which then ask none of several
            reach_master("yarn")


def test_where_the_resource_manager_is_has_to_be_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _site(tmp_path, monkeypatch, webapp_address="127.0.0.1:8088")
    with pytest.raises(SetupError, match=r"SETUP-154 .*yarn-site.xml without yarn.resourcemanager.hostname"):
        reach_master("yarn")
    (tmp_path / "yarn-site.xml").write_text("<configuration>")
    with pytest.raises(SetupError, match=r"SETUP-154 .*yarn-site.xml: no element found"):
        reach_master("yarn")
    (tmp_path / "yarn-site.xml").unlink()
    with pytest.raises(SetupError, match=rf"SETUP-154 .*got no yarn-site.xml in {tmp_path}"):
        reach_master("yarn")
    monkeypatch.delenv("HADOOP_CONF_DIR")
    with pytest.raises(SetupError, match=r"SETUP-154 .*neither HADOOP_CONF_DIR nor YARN_CONF_DIR"):
        reach_master("yarn")


def test_values_name_other_values_and_variables_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    """The first is how most clusters write the address."""
    monkeypatch.setenv("MANAGER", "127.0.0.1")
    for address in (
        "${yarn.resourcemanager.hostname}:" + str(port),
        "${env.MANAGER}:${env.NO_PORT:-" + str(port) + "}",
        "${env.NO_HOST-127.0.0.1}:" + str(port),
    ):
        _site(tmp_path, monkeypatch, hostname="${host.of.manager}", address=address)
        (tmp_path / "core-site.xml").write_text(
            '<configuration><property name="host.of.manager" value="127.0.0.1"/></configuration>'
        )
        assert hadoop.properties({})["yarn.resourcemanager.address"] == f"127.0.0.1:{port}"
        reach_master("yarn")


def test_what_only_java_can_tell_is_left_to_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _site(tmp_path, monkeypatch, hostname="${host.of.the.system}", address="${yarn.resourcemanager.hostname}:8032")
    reach_master("yarn")


def test_parts_of_a_configuration_lie_in_other_files_and_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    """Files that it includes, several folders of a variable, and settings of Spark."""
    include = '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="{}"{}>{}</xi:include>'
    (tmp_path / "part of.xml").write_text(_SITE.format(_PROPERTY.format("address", f"127.0.0.1:{port}")))
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    fallback = "<xi:fallback>" + _PROPERTY.format("hostname", "127.0.0.1") + "</xi:fallback>"
    (second / "yarn-site.xml").write_text(
        _SITE.format(include.format("../part%20of.xml", "", "") + include.format("none.xml", "", fallback))
    )
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    monkeypatch.setenv("HADOOP_CONF_DIR", f"{first}:{second}")
    reach_master("yarn")
    assert hadoop.properties({})["yarn.resourcemanager.hostname"] == "127.0.0.1"
    _site(first, monkeypatch, webapp_address="127.0.0.1:8088")
    monkeypatch.setenv("YARN_CONF_DIR", str(second))
    with pytest.raises(SetupError, match=r"SETUP-154 .*first/yarn-site.xml without yarn.resourcemanager.hostname"):
        reach_master("yarn")  # Java finds that file first, too
    reach_master("yarn", {"spark.hadoop.yarn.resourcemanager.address": f"127.0.0.1:{port}"})


def test_a_path_without_a_scheme_is_one_of_the_disk_whatever_the_cluster_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what YARN copies to its nodes lies in the cluster's file system, as without that."""
    _site(tmp_path, monkeypatch, hostname="manager")
    monkeypatch.setenv("HADOOP_USER_NAME", "ann")
    core = _SITE.format("<property><name>fs.defaultFS</name><value>{}</value></property>")

    def settings(files: str, **given: str) -> dict[str, str]:
        (tmp_path / "core-site.xml").write_text(core.format(files))
        extra = {f"spark.yarn.{name}": text for name, text in given.items()}
        made = dict(builder._conf("a", "yarn", "1g", extra, tmp_path / "none").getAll())
        assert made["spark.hadoop.fs.defaultFS"] == "file:///"
        return {name.removeprefix("spark.yarn."): text for name, text in made.items() if "yarn" in name}

    assert settings("hdfs://names:8020/") == {"stagingDir": "hdfs://names:8020/user/ann"}
    assert settings("hdfs://names:8020", stagingDir="/staging") == {"stagingDir": "hdfs://names:8020/staging"}
    assert settings("hdfs://names:8020", stagingDir="hdfs:///staging", jars="hdfs:///a.jar,local:/b.jar") == {
        "stagingDir": "hdfs://names:8020/staging",
        "jars": "hdfs://names:8020/a.jar,local:/b.jar",
    }
    assert settings("hdfs://names:8020", stagingDir="file:///shared") == {"stagingDir": "file:///shared"}
    assert settings("file:///") == {}
    assert settings("file:///", stagingDir="/shared") == {"stagingDir": "/shared"}


def test_lines_about_launches_are_read_and_not_shown() -> None:
    launches = Launches()
    assert launches.takes(_LOG + b"added: app-1/0 on worker-1 (10.0.0.7:3571) with 1 core(s)")
    assert launches.takes(_LOG + b"updated: app-1/0 is now EXITED (Command exited with code 1)")
    assert not launches.takes(
        b"2026-11-28 18:27:31 ERROR StandaloneAppClient$ClientEndpoint: All masters are unresponsive"
    )
    assert launches.hosts == {"app-1/0": "10.0.0.7:3571"}
    assert launches.ended == {"app-1/0": "Command exited with code 1"}


class _Context:
    """A context of an application without executors."""

    master = "spark://10.0.0.1:7077"
    _jsc = SimpleNamespace(sc=lambda: SimpleNamespace(getExecutorMemoryStatus=lambda: SimpleNamespace(size=lambda: 1)))

    @staticmethod
    def getConf() -> Any:  # noqa: N802 - Spark's
        settings = {"spark.driver.host": "172.17.0.2", "spark.driver.port": "40001", "spark.executor.memory": "2g"}
        return SimpleNamespace(get=settings.get)


def test_executors_that_cannot_reach_the_driver_name_the_address_they_tried() -> None:
    launches = Launches({"app-1/0": "10.0.0.7:3571"}, {"app-1/0": "Command exited with code 1"})
    with pytest.raises(
        SetupError,
        match=r"SETUP-084 .*connect to the driver at 172.17.0.2:40001, got .*10.0.0.7:3571.*code 1.*spark.driver.host",
    ):
        executors.await_first(_Context(), launches)  # type: ignore[arg-type]


def test_a_cluster_without_room_says_what_an_executor_needs() -> None:
    with pytest.raises(SetupError, match=r"SETUP-083 .*a free core and 2g for an executor within 0 s, got none"):
        executors.await_first(_Context(), Launches(), seconds=0)  # type: ignore[arg-type]


_LOST = "Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): "


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'java.io.IOException: Cannot run program "/venv/bin/python": error=2',
            "SETUP-081 worker 10.0.0.7: .*no program /venv/bin/python",
        ),
        (
            "Error from python worker: ModuleNotFoundError: No module named 'floodmark'",
            "SETUP-081 worker 10.0.0.7: .*no module floodmark.*pip install",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11",
            r"SETUP-080 worker 10.0.0.7: expected Python \d.\d+, as the driver has, got Python 3.12",
        ),
    ],
)
def test_a_worker_whose_python_does_not_fit_is_named(text: str, expected: str) -> None:
    refusal = cluster.refused("/venv/bin/python", _LOST + text)
    assert refusal is not None
    with pytest.raises(SetupError, match=expected):
        raise refusal


def test_another_failure_is_none_of_the_workers() -> None:
    assert cluster.refused("python", _LOST + "java.lang.OutOfMemoryError") is None


def test_a_worker_with_another_version_is_told_which_command_mends_it() -> None:
    worker = cluster.Worker(
        host="node7",
        folder="/srv/worker/0",
        program="/venv/bin/python",
        versions={**cluster.versions(), "pyarrow": "1.0"},
        seen={},
    )
    with pytest.raises(
        SetupError,
        match=r"SETUP-080 worker node7: .*got pyarrow 1.0 \(/venv/bin/python\). There: /venv/bin/python -m pip install pyarrow==",
    ):
        cluster.check_versions(worker)


def test_another_release_of_spark_is_refused_before_java_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.3.0")
    with pytest.raises(
        SetupError, match=r"SETUP-124 Spark in /.*: expected Spark 4.2, .*got 4.3.0. Install .*floodmark\[spark\]"
    ):
        home.check_release()
    monkeypatch.setattr(pyspark, "__version__", "4.2.1")
    home.check_release()


def test_a_context_whose_workers_could_not_be_met_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next session of the process would find it, and meet nobody."""
    ended: list[str] = []
    context: Any = SimpleNamespace(stop=lambda: ended.append("stopped"))
    sessions = SimpleNamespace(builder=SimpleNamespace(getOrCreate=lambda: None))
    monkeypatch.setattr(builder, "SparkSession", sessions)
    monkeypatch.setattr(builder, "inheritable_thread_target", lambda function: function)

    def meet(_: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        builder._beside_workers(context, None, meet)
    assert ended == ["stopped"]
