"""Expectations that a run judges before it commits: rows set aside, runs stopped, rows counted; the same in each engine and mode."""

from __future__ import annotations

import pytest
from judged_readings import ODD, PLAIN, Reading, between, expecting, means, warm

import floodmark as fm
from floodmark.core.errors import DefinitionError, ExecutionError
from floodmark.testing import Run

MODES = ("bounded", "unbounded")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.feature("Z8")
def test_a_row_that_does_not_meet_an_expectation_is_set_aside_with_its_reason(mode):
    filled = fm.Expectation("column_values_to_not_be_null", column="mean", on_fail="quarantine", name="filled")
    code = expecting(means, between("quarantine"), filled)
    plain, parted = (Run("embedded", mode)(one, ODD) for one in (means, code))
    assert parted == Run("memory", "bounded")(code, ODD)
    aside = list(parted["quarantine"])
    assert {(row["step"], row["reason"].split("(")[0]) for row in aside} == {
        ("expectation 'cool'", "the row does not meet column_values_to_be_between")
    }
    assert len(parted[""]) + len(aside) == len(plain[""])
    assert all(row["mean"] <= 40 for row in parted[""])


@pytest.mark.parametrize("mode", MODES)
def test_rows_of_an_operator_without_state_are_set_aside(mode):
    code = expecting(warm, between("quarantine", "celsius"))
    parted = Run("embedded", mode)(code, ODD)
    assert parted == Run("memory", "bounded")(code, ODD)
    assert sorted(row["celsius"] for row in parted[""]) == [1.0, 3.0, 5.0, 7.5, 20.0, 21.0]
    assert len(parted["quarantine"]) == 3  # 99, 50, NaN


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.feature("Z8")
def test_a_run_stops_before_it_commits_and_names_numbers_a_row_and_the_command(mode):
    code = expecting(means, between("stop"))
    with pytest.raises(ExecutionError) as stopped:
        Run("embedded", mode)(code, ODD)
    error = stopped.value
    assert error.code == "EXECUTION-090"
    assert "cool, column_values_to_be_between(column='mean', max_value=40): " in error.got
    assert "for example" in error.got
    assert f"floodmark run means{' --unbounded' if mode == 'unbounded' else ''}" in error.fix


@pytest.mark.parametrize("mode", MODES)
def test_a_warning_lets_every_row_through(mode):
    code = expecting(
        means, between("warn"), fm.Expectation("table_row_count_to_be_between", max_value=0, on_fail="warn")
    )
    assert code.version == means.version
    assert Run("embedded", mode)(code, PLAIN) == Run("embedded", mode)(means, PLAIN)


@pytest.mark.parametrize("mode", MODES)
def test_mostly_is_a_share_of_the_rows_of_a_commit(mode):
    code = expecting(warm, between("stop", "celsius", mostly=0.5))
    assert Run("embedded", mode)(code, PLAIN) == Run("embedded", mode)(warm, PLAIN)


def test_a_quarantine_is_part_of_the_version_and_readers_stay_bound():
    @fm.operator(inputs={"means": means})
    def daily(means: fm.Stream) -> fm.Stream:
        return means.key_by("sensor").window(fm.Tumbling("1 day")).aggregate(hours=fm.count())

    asset = fm.operator_asset(means, expectations=[between("quarantine")])
    assert asset.operator.version != means.version
    source = fm.Source(
        "readings", contract=Reading, connector=fm.Rows([]), watermark=fm.BoundedOutOfOrderness("1 minute")
    )
    workspace = fm.Workspace(sources=[source], operators=[asset, daily])
    assert [output.table for output in workspace.operator("means").outputs] == ["means", "means__quarantine"]


@pytest.mark.parametrize(
    ("expectation", "code", "said"),
    [
        (
            fm.Expectation("column_values_to_be_increasing", column="n", on_fail="stop"),
            "DEFINITION-291",
            "column_values_to_be_between",
        ),
        (
            fm.Expectation("column_values_to_be_between", column="n", on_fail="warn"),
            "DEFINITION-291",
            "neither min_value",
        ),
        (
            fm.Expectation("column_values_to_be_between", column="n", min_value="a", on_fail="warn"),
            "DEFINITION-291",
            "'a' is no bigint",
        ),
        (
            fm.Expectation("column_mean_to_be_between", column="n", min_value=1, on_fail="quarantine"),
            "DEFINITION-292",
            "each row",
        ),
        (fm.Expectation("column_values_to_be_unique", column="n", on_fail="quarantine"), "DEFINITION-292", "each row"),
        (between("quarantine", mostly=0.5), "DEFINITION-292", "mostly"),
    ],
)
def test_what_cannot_be_judged_before_the_commit_says_so_when_it_is_defined(expectation, code, said):
    with pytest.raises(DefinitionError) as refused:
        fm.operator_asset(means, expectations=[expectation])
    assert refused.value.code == code
    assert said in f"{refused.value}"


def test_another_word_is_refused():
    with pytest.raises(DefinitionError, match="DEFINITION-290"):
        between("drop")
