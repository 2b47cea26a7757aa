"""The jobs freeze and thaw, and the links to a stream's jobs on its asset, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import dagster as dg
import pytest
import yaml
from events import Event, row, source

from floodmark import Hourly, Settings, Stream, Tumbling, Workspace, count, operator, operator_asset
from floodmark.control.processes.engine import Computing
from floodmark.control.state.records import Deployment
from floodmark.core.errors import DefinitionError, LifecycleError
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import frozen
from floodmark.orchestration import StepWorkspace, build_definitions
from floodmark.orchestration.advice import links


@operator
def per_hour(events: Stream[Event]) -> Stream:
    """Divided into hours."""
    return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count())


def workspace(root: Path) -> Workspace:
    hours = Hourly("2020-01-01T00:00", end="2020-01-01T06:00")
    settings = Settings(lake="lake", engine="embedded")
    events = source([row(minute) for minute in range(200)])
    return Workspace(sources=[events], operators=[operator_asset(per_hour, partitions=hours)], settings=settings).at(
        str(root)
    )


@pytest.mark.feature("Z2")
def test_what_a_job_has_frozen_nothing_rewrites_until_a_job_thaws_it(embedded: Computing, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    found = workspace(tmp_path)
    definitions, lake = build_definitions(found, root=tmp_path), Lake.of(found.settings)
    embedded.land(found.source("events"), lake, end=True)
    embedded.run_bounded(found.operator("per_hour"), lake, Interval())
    with dg.DagsterInstance.ephemeral() as instance:

        def launch(job: str, step: str, **config: Any) -> str:
            """The reason of its failure; empty if it succeeds."""
            done = definitions.resolve_job_def(job).execute_in_process(
                instance=instance, run_config={"ops": {step: {"config": config}}}, raise_on_error=False
            )
            failure = None if done.success else done.failure_data_for_node(step)
            return "" if failure is None else str(failure.user_failure_data.description)

        assert launch("freeze", "freeze_results", before="2020-01-01-02:00", note="reported") == ""
        kept = frozen.frozen(lake, "per_hour")
        assert kept is not None
        assert (kept.note, kept.before) == ("reported", 1_577_844_000_000)
        assert "LIFECYCLE-190" in launch("freeze", "freeze_results", before="2020-01-01T02:30")
        assert launch("thaw", "thaw_results", since="2020-01-01-01:00") == ""
        kept = frozen.frozen(lake, "per_hour")
        assert kept is not None
        assert kept.before == 1_577_840_400_000
        assert launch("thaw", "thaw_results") == ""
        assert frozen.frozen(lake, "per_hour") is None
        assert "LIFECYCLE-203" in launch("thaw", "thaw_results")


def test_an_asset_of_a_user_reads_outputs_by_the_resource(embedded: Computing, tmp_path: Path) -> None:
    found = workspace(tmp_path)
    lake = Lake.of(found.settings)
    embedded.land(found.source("events"), lake, end=True)
    embedded.run_bounded(found.operator("per_hour"), lake, Interval())
    read = list[list[dict[str, Any]]]()

    @dg.asset(deps=["per_hour"])
    def report(floodmark: dg.ResourceParam[StepWorkspace]) -> None:
        read.append(floodmark.rows("per_hour", "2020-01-01-01:00").to_pylist())
        read.append(floodmark.rows("per_hour").to_pylist())
        read.append(floodmark.rows("events").to_pylist())
        with pytest.raises(DefinitionError, match="DEFINITION-071 resource floodmark: .* got 'per_huor'"):
            floodmark.rows("per_huor")
        with pytest.raises(LifecycleError, match="LIFECYCLE-190 rows of 'events'"):
            floodmark.rows("events", "2020-01-01")

    definitions = dg.Definitions.merge(build_definitions(found, root=tmp_path), dg.Definitions(assets=[report]))
    assert (
        definitions.resolve_implicit_global_asset_job_def()
        .execute_in_process(asset_selection=[dg.AssetKey("report")])
        .success
    )
    hour, every, events = read
    assert sorted((one["key"], one["n"]) for one in hour) == [("a", 30), ("b", 30)]
    assert set(hour[0]) == {"key", "window_start", "window_end", "n"}
    assert (len(every), len(events)) == (8, 200)


@pytest.mark.feature("Z7")
@pytest.mark.parametrize("kind", ["operator", "source"])
def test_an_asset_links_to_the_launchpads_of_its_streams_jobs_with_configs_that_are_complete(
    kind: Any, tmp_path: Path
) -> None:
    name = "per_hour" if kind == "operator" else "events"
    about: dict[str, Any] = {"root": "/", "lake": "/lake", "environment": "dev", "package": "p", "version": "a@1"}
    definitions = build_definitions(workspace(tmp_path), root=tmp_path)
    names = set[str]()
    for desired in ("running", "stopped"):
        stream = Deployment(operator=name, desired=desired, kind=kind, **about)
        assert links("", stream) == {}
        for text, value in links("__repository__@definitions.defs", stream).items():
            address = urlsplit(value.value)
            job = text.removeprefix("job ")
            assert address.path == f"/locations/__repository__@definitions.defs/jobs/{job}/playground/setup"
            config = yaml.safe_load(parse_qs(address.query)["config"][0])
            assert dg.validate_run_config(definitions.resolve_job_def(job), config)
            names.add(job)
    assert names == {"start", "stop", "restart"} | ({"savepoint", "upgrade"} if kind == "operator" else set())
