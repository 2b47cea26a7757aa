"""What Dagster shows of an asset: one name and one path for a table, and the columns a run wrote."""

from __future__ import annotations

import dagster as dg

from definitions import workspace
from floodmark.compiler.lineage import lineage
from floodmark.lake.folder.paths import Lake
from floodmark.orchestration import metadata
from floodmark.orchestration.assets import output_key
from floodmark.spec.values.run import RunResult

LAKE = Lake("/lake")


def test_an_asset_has_the_name_of_its_table():
    names = {
        output_key(o).to_user_string()
        for name in ("hourly_departures", "split_delays")
        for o in workspace().operator(name).outputs
    }
    assert names == {"hourly_departures", "hourly_departures__late", "split_delays__severe", "split_delays__normal"}


def test_the_path_is_that_of_the_rows_people_read_and_a_changelog_is_named_beside_it():
    hourly, carriers = (workspace().operator(name) for name in ("rolling_departures", "daily_carriers"))
    final, revised = hourly.outputs[0], carriers.outputs[0]
    assert metadata.of_output(LAKE, final, {})["dagster/uri"] == LAKE.output("rolling_departures")
    assert "changelog" not in metadata.of_output(LAKE, final, {})
    about = metadata.of_output(LAKE, revised, {})
    assert about["dagster/uri"] == LAKE.output("daily_carriers__current")
    assert about["changelog"] == LAKE.output("daily_carriers")


def test_a_materialization_keeps_the_columns_its_run_wrote():
    output = workspace().operator("rolling_departures").outputs[0]
    about = metadata.of_run(RunResult(operator="rolling_departures", version="r@1", mode="bounded"), output, {})
    columns = about["dagster/column_schema"]
    assert isinstance(columns, dg.TableSchema)
    assert [column.name for column in columns.columns] == [column.name for column in output.schema.columns]
    assert "table" not in about, "its path is in the definition"


def test_a_column_that_nobody_has_described_says_what_it_is_computed_from():
    operator = workspace().operator("hourly_departures")
    output = operator.outputs[0]
    origins = dict(lineage(operator, {"flights": "scheduled"})[output.table])
    origins["departures"] = frozenset(("flights", name) for name in ("origin", "dest", "carrier", "flight"))
    shown = metadata.of_output(LAKE, output, origins)["dagster/column_schema"]
    assert {column.name: column.description for column in shown.columns} == {
        "origin": "airport of departure: EWR, JFK or LGA",
        "window_start": "from flights.scheduled",
        "window_end": "from flights.scheduled",
        "departures": "from 4 columns of flights",
        "mean_delay": "from flights.dep_delay",
    }
