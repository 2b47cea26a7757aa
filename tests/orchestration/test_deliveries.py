"""A delivery in Dagster: an asset behind its output, materialized by what is there, with the check `stream` as any other stream has."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest
import small_lake
from dagster_runs import looked
from events import row, source

from floodmark import Settings, ToSql, Workspace, operator_asset
from floodmark.deliveries.run import deliver
from floodmark.lake.folder import locks
from floodmark.lake.folder.paths import Lake
from floodmark.orchestration import build_definitions
from floodmark.orchestration.health import look
from floodmark.orchestration.jobs import Streams
from floodmark.orchestration.session import StepWorkspace

KEY = dg.AssetKey("totals_to_sql")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """One with a lake of two micro-batches."""
    (tmp_path / "pyproject.toml").write_text("")
    small_lake.make(tmp_path / "lake")
    asset = operator_asset(small_lake.TOTALS, deliver=[ToSql(f"sqlite:///{tmp_path}/sink.db")])
    return Workspace(sources=[source([row(0)])], operators=[asset], settings=Settings(engine="embedded")).at(
        str(tmp_path)
    )


def test_a_delivery_is_an_asset_behind_its_output(workspace: Workspace, tmp_path: Path) -> None:
    definitions = build_definitions(workspace, root=tmp_path)
    graph = definitions.resolve_asset_graph()
    assert graph.get(KEY).parent_keys == {dg.AssetKey("totals")}
    assert dg.AssetCheckKey(KEY, "stream") in graph.asset_check_keys
    with dg.DagsterInstance.ephemeral() as instance:
        made = definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance, asset_selection=[KEY]
        )
        assert made.success
        (event,) = made.get_asset_materialization_events()
        about = {name: value.value for name, value in event.materialization.metadata.items()}
    assert (about["results"], about["version"], about["delivered by"]) == (2, 1, "this run")
    with closing(sqlite3.connect(tmp_path / "sink.db")) as connection:
        assert dict(connection.execute("SELECT key, total FROM totals")) == {"a": 10, "b": 2}
    with locks.exclusive(Lake.of(workspace.settings), "deliveries", KEY.to_user_string(), "delivery"):
        again = dg.materialize([next(one for one in definitions.assets or () if KEY in one.keys)])  # type: ignore[union-attr]
        (event,) = again.get_asset_materialization_events()
        assert "process" in str(event.materialization.metadata["delivered by"].value)


def test_the_check_of_a_delivery_is_that_of_its_stream(workspace: Workspace, tmp_path: Path) -> None:
    streams = Streams(StepWorkspace(workspace), tmp_path)
    fleet = streams.fleet(lambda _: None)
    fleet.start([workspace.delivery("totals_to_sql")])
    (name, seen), *_ = look(workspace, streams, {}).items()
    assert (name, seen.key, seen.health.condition) == ("totals_to_sql", KEY, "unsupervised")


def test_what_a_supervised_stream_has_delivered_is_reported_as_a_materialization(
    workspace: Workspace, tmp_path: Path
) -> None:
    definitions, lake = build_definitions(workspace, root=tmp_path), Lake.of(workspace.settings)
    route = workspace.delivery("totals_to_sql")
    Streams(StepWorkspace(workspace), tmp_path).fleet(lambda _: None).start([route])
    with dg.DagsterInstance.ephemeral() as instance:

        def reported(cursor: str | None) -> tuple[list[dict[str, object]], str | None]:
            look = looked(definitions, instance, cursor, report=True)
            made = [one for one in look.asset_events if isinstance(one, dg.AssetMaterialization)]
            assert all(one.asset_key == KEY for one in made)
            return [{name: value.value for name, value in one.metadata.items()} for one in made], look.cursor

        found, cursor = reported(None)
        assert found == [], "nothing is delivered yet"
        deliver(route, lake, until_caught_up=True)
        (about,), cursor = reported(cursor)
        assert (about["by"], about["version"]) == ("the stream", 1)
        assert reported(cursor)[0] == [], "once"
        assert reported(None)[0] == [], "also if the cursor is lost"
