"""docs/features.md says of every behaviour what the tests' marks say, and no more."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from .features_page import LIST, RISKS, ROOT, Feature, commands, features, lost, marks, missing, page, shown, works

RUN = "run: python tests/docs/features_page.py > docs/features.md"
TITLE = "from __future__ import annotations\nimport pytest\n"


def listed() -> dict[str, dict[str, str]]:
    found = tomllib.loads(LIST.read_text("utf-8"))
    return {kind: found[kind] for kind in ("alternatives", "not_applicable", "not_yet")}


def of(folder: Path, text: str) -> dict[str, list[str]]:
    """What the marks of a file of tests show; a folder is read once."""
    (folder / "tests").mkdir(exist_ok=True, parents=True)
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


def test_a_reason_is_given_once_and_beside_tests_none_says_that_nothing_can_show_it() -> None:
    given = [name for reasons in listed().values() for name in reasons]
    assert len(given) == len(set(given))
    assert set(given) <= {one.id for one in features()}
    assert not set(listed()["not_applicable"]) & set(shown(marks())), (
        "a test shows it: take the reason out of features.toml"
    )
    assert not [name for name, reason in listed()["alternatives"].items() if "not built yet" in reason]


def test_risks_are_known_and_of_behaviours() -> None:
    given = tomllib.loads(LIST.read_text("utf-8"))["risks"]
    assert set(given) <= {one.id for one in features()}
    assert set(RISKS) >= {risk for risks in given.values() for risk in risks}
    assert all(len(risks) == len(set(risks)) > 0 for risks in given.values())


def test_the_behaviours_of_the_page_work_by_a_test_that_is_named() -> None:
    for row in re.findall(r"^\| [A-Z]\d+ \|.*\|$", page(), re.MULTILINE):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 5, row
        assert bool(cells[2]) == cells[3].startswith(("[tests/", "[floodmark-airflow/tests/")), row
        assert cells[2] or cells[4] != "works", row
        assert cells[3].count("](../tests/") <= 3, row


def test_what_only_tests_of_another_environment_show_works_by_their_command(tmp_path: Path) -> None:
    folder = tmp_path / "floodmark-airflow" / "tests"
    folder.mkdir(parents=True)
    (folder / "test_y.py").write_text(TITLE + '@pytest.mark.feature("Z10")\ndef test_one(airflow): assert airflow')
    of(tmp_path, '@pytest.mark.feature("T1")\ndef test_two(): assert True')
    both = {"Z10": ["make test-airflow"], "T1": []}
    behaviours = [Feature(id=name, section="", behaviour="", risks=(), otherwise="not yet") for name in both]
    assert {one.id: commands(one, marks(tmp_path)) for one in behaviours} == both
    assert all(works(one, marks(tmp_path)) for one in behaviours)


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
        "@pytest.fixture\ndef page(): pytest.skip('no browser')\n{mark}\ndef test_one(page): assert page",
        "def found(): pytest.skip('none')\n{mark}\ndef test_one(): assert found()",
        "{mark}\n@pytest.mark.soak\ndef test_one(): assert True",
        "{mark}\n@pytest.mark.engines(soak=('spark',))\ndef test_one(engine): assert engine",
        "{mark}\n@pytest.mark.parametrize('x', [pytest.param(n, marks=pytest.mark.soak) for n in (1, 2)])\ndef test_one(x): assert x",
        "{mark}\n@pytest.mark.parametrize('x', [1, pytest.param(2, marks=pytest.mark.soak)])\ndef test_one(x): assert x",
        "@pytest.mark.parametrize('x', [pytest.param(1, marks=[{inner}, pytest.mark.xfail])])\ndef test_one(x): assert x",
    ],
)
def test_what_is_skipped_expected_to_fail_or_too_long_for_every_run_does_not_work(tmp_path: Path, text: str) -> None:
    inner = 'pytest.mark.feature("A1")'
    kept = (
        text.replace("xfail(strict=True)", "slow").replace("skipif(True, reason='')", "slow").replace("xfail", "slow")
    )
    kept = (
        (kept.replace("skip(reason='later')", "slow").replace("mark.skip", "mark.slow").replace("pytest.skip", "print"))
        .replace("mark.soak", "mark.slow")
        .replace("engines(soak=('spark',))", "engines('spark')")
    )
    assert of(tmp_path / "text", text.format(mark=f"@{inner}", inner=inner)) == {}
    assert list(of(tmp_path / "kept", kept.format(mark=f"@{inner}", inner=inner))) == ["A1"]


@pytest.mark.parametrize(
    ("text", "risks"),
    [
        ("{mark}\ndef test_one(): assert True", set()),
        ("{mark}\ndef test_one(spark): assert spark", {"spark"}),
        ("{mark}\ndef test_one(spark, engine): assert engine", {"embedded"}),
        ("{mark}\ndef test_one():\n    page = 1\n    assert page", set()),
        ("{mark}\ndef test_one(page): assert page", {"browser"}),
        ("{mark}\n@pytest.mark.usefixtures('spark')\ndef test_one(): assert True", {"spark"}),
        ("@pytest.fixture\ndef lake(spark): return 1\n{mark}\ndef test_one(lake): assert lake", {"spark"}),
        (
            "{mark}\n@pytest.mark.engines('embedded', soak=('spark',))\ndef test_one(engine): assert engine",
            {"embedded"},
        ),
        (
            "{mark}\n@pytest.mark.engines('embedded', 'spark')\ndef test_one(engine): assert engine",
            {"embedded", "spark"},
        ),
        (
            "{mark}\n@pytest.mark.engines('embedded', 'spark')\n@pytest.mark.parametrize('x', PARAMETERS)\ndef test_one(engine, x): assert x\nPARAMETERS = [1, pytest.param(2, marks=pytest.mark.engines(soak=('spark',)))]",
            {"embedded"},
        ),
        ("{mark}\ndef test_one(engine_name): assert engine_name", {"embedded"}),
        (
            "from floodmark.engines.spark.unbounded.run import run_unbounded\n{mark}\ndef test_one(spark, engine): run_unbounded(spark)",
            {"spark", "embedded"},
        ),
        ("import program\n{mark}\ndef test_one(): assert program.__file__", {"kafka"}),
        ("def killed(): return signal.SIGKILL\n{mark}\ndef test_one(): assert killed()", {"crash"}),
        ("AT = crash.VARIABLE\n{mark}\ndef test_one(): assert AT", {"crash"}),
        ("{mark}\ndef test_one(): assert run_bounded()", set()),
        ("def both(): return run_bounded(), run_unbounded()\n{mark}\ndef test_one(): assert both()", {"both modes"}),
        ("{mark}\n@pytest.mark.parametrize('run', RUNS)\ndef test_one(run): assert run", {"both modes"}),
        ("from help import helped\n{mark}\ndef test_one(): assert helped()", {"crash", "spark"}),
    ],
)
def test_what_a_test_covers_is_read_from_what_it_reaches(tmp_path: Path, text: str, risks: set[str]) -> None:
    (tmp_path / "tests" / "support").mkdir(parents=True)
    (tmp_path / "tests" / "support" / "help.py").write_text("def helped(spark=None): return signal.SIGKILL\n")
    (tmp_path / "tests" / "support" / "program.py").write_text("def main(): return kafka\n")
    of(tmp_path, text.format(mark='@pytest.mark.feature("A1")'))
    (found,) = [mark for mark in marks(tmp_path) if mark.ids]
    assert found.risks == risks
    asked = Feature(id="A1", section="", behaviour="", risks=("spark", "crash"), otherwise="not yet")
    assert missing(asked, [found]) == [risk for risk in asked.risks if risk not in risks]


def test_the_strongest_test_is_named_first(tmp_path: Path) -> None:
    """One on Spark before one on the embedded engine, one that kills before one that does not; else the one that shows the fewest others."""
    mark = '@pytest.mark.feature("A1")'
    text = f"""
{mark}
def test_kernel(): assert True
{mark}
@pytest.mark.feature("A2")
def test_kernel_and_more(): assert True
{mark}
def test_embedded(engine): assert engine
{mark}
@pytest.mark.feature("A3")
def test_spark(spark): assert spark
{mark}
@pytest.mark.feature("A4")
def test_killed(spark): assert signal.SIGKILL
"""
    assert of(tmp_path, text)["A1"] == [
        "test_killed",
        "test_spark",
        "test_embedded",
        "test_kernel",
        "test_kernel_and_more",
    ]


def test_a_mark_on_no_test_is_lost(tmp_path: Path) -> None:
    of(
        tmp_path,
        '@pytest.mark.feature("A1")\ndef test_one(): assert True\n\n@pytest.mark.feature("A2")\ndef helper(): ...',
    )
    assert lost(tmp_path) == ["tests/test_x.py:6"]
