"""docs/features.md says of every behaviour what the tests' marks say, and no more."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from .features_page import LIST, ROOT, features, lost, marks, page, shown

RUN = "run: python tests/docs/features_page.py > docs/features.md"
TITLE = "from __future__ import annotations\nimport pytest\n"


def listed() -> dict[str, dict[str, str]]:
    found = tomllib.loads(LIST.read_text("utf-8"))
    return {"alternatives": found["alternatives"], "not_applicable": found["not_applicable"]}


def of(folder: Path, text: str) -> dict[str, list[str]]:
    """What the marks of a file of tests show."""
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests" / "test_x.py").write_text(TITLE + text)
    return {name: [test.removeprefix("tests/test_x.py::") for test in tests] for name, tests in _shown(folder).items()}


def _shown(folder: Path) -> dict[str, list[str]]:
    return shown(marks(folder))


def test_the_page_is_what_the_marks_say() -> None:
    assert (ROOT / "docs" / "features.md").read_text("utf-8") == page(), RUN


def test_every_behaviour_has_one_row() -> None:
    rows = re.findall(r"^\| ([A-Z]\d+) \|", (ROOT / "docs" / "features.md").read_text("utf-8"), re.MULTILINE)
    assert rows == [one.id for one in features()], RUN
    assert len(rows) == len(set(rows)) > 200


def test_every_mark_names_a_behaviour_and_stands_on_a_test() -> None:
    known = {one.id for one in features()}
    unknown = [(mark.test, name) for mark in marks() for name in mark.ids if name not in known]
    assert not unknown
    assert not lost()


def test_a_reason_is_given_once_and_only_where_no_test_shows_the_behaviour() -> None:
    given = [name for reasons in listed().values() for name in reasons]
    assert len(given) == len(set(given))
    assert set(given) <= {one.id for one in features()}
    assert not set(given) & set(shown(marks())), "a test shows it: take the reason out of features.toml"


def test_the_behaviours_of_the_page_work_by_a_test_that_is_named() -> None:
    for row in re.findall(r"^\| [A-Z]\d+ \|.*\|$", page(), re.MULTILINE):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 4, row
        assert (cells[3] == "works") == cells[2].startswith("[tests/"), row
        assert cells[2].count("](../tests/") <= 3, row


def test_marks_are_found_on_functions_parameters_classes_and_modules(tmp_path: Path) -> None:
    text = """
pytestmark = [pytest.mark.feature("A1"), pytest.mark.timeout(3)]
CASES = [1, pytest.param(2, marks=pytest.mark.feature("A2"))]
more = pytest.mark.feature("A3", "A4")

@more
@pytest.mark.parametrize("x", CASES)
def test_one(x): assert x

@pytest.mark.feature("A5")
class TestSome:
    @pytest.mark.parametrize("x", [pytest.param(1, marks=[pytest.mark.slow, pytest.mark.feature("A6")])])
    async def test_two(self, x): assert x
"""
    one, two = "test_one", "TestSome::test_two"
    assert of(tmp_path, text) == {"A1": [two, one], "A2": [one], "A3": [one], "A4": [one], "A5": [two], "A6": [two]}


@pytest.mark.parametrize(
    "text",
    [
        "@pytest.mark.skip\n{mark}\ndef test_one(): assert True",
        "{mark}\n@pytest.mark.skip(reason='later')\ndef test_one(): assert True",
        "{mark}\n@pytest.mark.skipif(True, reason='')\ndef test_one(): assert True",
        "{mark}\n@pytest.mark.xfail(strict=True)\ndef test_one(): assert False",
        "pytestmark = pytest.mark.skip\n{mark}\ndef test_one(): assert True",
        "@pytest.mark.xfail\nclass TestSome:\n    {mark}\n    def test_one(self): assert False",
        "{mark}\ndef test_one():\n    pytest.skip('later')",
        "@pytest.mark.parametrize('x', [pytest.param(1, marks=[{inner}, pytest.mark.xfail])])\ndef test_one(x): assert x",
    ],
)
def test_what_is_skipped_or_expected_to_fail_does_not_work(tmp_path: Path, text: str) -> None:
    inner = 'pytest.mark.feature("A1")'
    kept = (
        text.replace("xfail(strict=True)", "slow").replace("skipif(True, reason='')", "slow").replace("xfail", "slow")
    )
    kept = (
        kept.replace("skip(reason='later')", "slow").replace("mark.skip", "mark.slow").replace("pytest.skip", "print")
    )
    assert of(tmp_path, text.format(mark=f"@{inner}", inner=inner)) == {}
    assert list(of(tmp_path, kept.format(mark=f"@{inner}", inner=inner))) == ["A1"]


def test_a_mark_on_no_test_is_lost(tmp_path: Path) -> None:
    of(
        tmp_path,
        '@pytest.mark.feature("A1")\ndef test_one(): assert True\n\n@pytest.mark.feature("A2")\ndef helper(): ...',
    )
    assert lost(tmp_path) == ["tests/test_x.py:6"]
