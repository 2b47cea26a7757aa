"""Transcripts: the cases other systems' suites state, in every variant in memory, and what the runner says of bad ones."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from floodmark.core.errors import DefinitionError
from floodmark.testing.grammar import load, transcript
from floodmark.testing.transcripts import check_in_memory, main

CASES = Path(__file__).resolve().parents[1] / "cases"
FILES = sorted(CASES.glob("*.yaml"))
ALL = [case for path in FILES for case in load(path)]


@pytest.mark.feature("W1", "W2", "W3", "W5", "W6", "W7", "L3", "L5", "L6", "L7", "L8", "T17", "B1")
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_a_case_passes_in_every_variant(case):
    assert check_in_memory(case, "both") is None


def raw(name: str = "count/sliding-4-every-2") -> dict:
    found = [case for path in FILES for case in yaml.safe_load(path.read_text())]
    return copy.deepcopy(next(case for case in found if case["name"] == name))


def test_a_wrong_expectation_is_told_with_what_came_instead():
    case = raw()
    case["steps"][-1]["expect"][0][1] = [1, 3]
    why = check_in_memory(transcript(case, "here"), "both")
    assert why is not None
    assert why.startswith("step 2: expected [['k', (1, 2, 3, 4), None, None], ['k', (1, 3), None, None]")
    assert why.endswith("(as written)")


def test_what_nobody_expected_is_a_failure_too():
    case = raw("sliding/one-minute-every-30s")
    case["steps"].append({"watermark": 10**9})
    why = check_in_memory(transcript(case, "here"), "unbounded")
    assert why is not None
    assert why.startswith("after the last step: expected [] got [['c', 10, 60000, 120000]]")


@pytest.mark.parametrize(
    ("place", "value", "got"),
    [
        (("operator", "colour"), "red", "colour"),
        (("operator", "window"), {"tumbling": "2s", "gap": "1s"}, "gap"),
        (("operator", "window"), {"hopping": "2s"}, "{'hopping': '2s'}"),
        (("operator", "trigger"), "sometimes", "'sometimes'"),
        (("operator", "trigger"), {"watermark": {"never": "after_count"}}, "never"),
        (("operator", "evictor"), {"keep_first": 2}, "{'keep_first': 2}"),
        (("operator", "function"), "product", "'product'"),
        (("steps",), [{"row": []}], "{'row': []}"),
        (("comment",), "no", "comment"),
    ],
)
def test_unknown_words_are_errors(place, value, got):
    case = raw()
    inner = case
    for word in place[:-1]:
        inner = inner[word]
    inner[place[-1]] = value
    with pytest.raises(DefinitionError) as error:
        transcript(case, "here")
    assert error.value.code == "DEFINITION-110"
    assert f"got {got}" in str(error.value)


def test_the_command_prints_a_line_per_case_and_fails_when_one_does(tmp_path):
    good, bad, odd = raw(), raw(), raw()
    bad["name"], odd["name"] = "bad", "odd"
    bad["steps"][-1]["expect"].pop()
    odd["steps"].append("pause")
    path = tmp_path / "cases.yaml"
    path.write_text(yaml.safe_dump([good, bad, odd]))
    found = CliRunner().invoke(main, [str(path), "--engine", "memory"])
    lines = found.output.splitlines()
    assert found.exit_code == 1
    assert lines[0].startswith("odd: fail: expected a case of the grammar got DEFINITION-110")
    assert lines[1] == "count/sliding-4-every-2 [memory]: pass"
    assert lines[2].startswith("bad [memory]: fail: step 2: expected [['k', (1, 2), None, None]")
    assert CliRunner().invoke(main, [str(path), "--engine", "memory", "--case", good["name"]]).exit_code == 0
    assert CliRunner().invoke(main, [str(path), "--engine", "memory", "--case", "none"]).exit_code == 1
