"""Blocks and commands of all pages: each block has a language, each command its verb and options, each piece of Python names and parameters that exist.

Pages whose commands are run have tests of their own, which compare what is printed; this is what holds for all others, too.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import console_pages
import page_runs
import pytest
from console_pages import FENCE

import floodmark
from floodmark.cli.main import VERBS

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/*.md", "docs/tutorials/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md"  # tells of what is gone, too
)


def text_of(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_each_block_has_a_language(page: str) -> None:
    bare = [found["body"].splitlines()[:1] for found in FENCE.finditer(text_of(page)) if not found["kind"]]
    assert bare == []


# ---- commands


def commands(page: str) -> Iterator[str]:
    """Every command of floodmark on a page, in blocks and in sentences."""
    text = text_of(page)
    for found in FENCE.finditer(text):
        for line in found["body"].splitlines():
            if re.match(r"\s*(\$ )?floodmark ", line):
                yield line.strip().removeprefix("$ ")
    yield from re.findall(r"`(floodmark [^`\n]+)`", FENCE.sub("", text))


def wrong(command: str) -> str:
    """What is wrong with a command: a verb or an option that does not exist; empty if nothing is."""
    first = re.split(r"\s(?:#|\||&&|2>|>|;)|;|\.\.\.", command)[0]
    if first.count('"') % 2 or first.count("'") % 2:  # cut inside a quotation, such as a statement of SQL
        first = re.split(r"[\"']", first)[0]
    words = shlex.split(first)[1:]
    while words and words[0].startswith("--"):
        words.pop(0)
    if not words or not re.fullmatch(r"[a-z-]+", words[0]):
        return ""
    if words[0] not in VERBS:
        return f"no verb {words[0]}"
    verb = verb_of(words.pop(0))
    if isinstance(verb, click.Group) and words and words[0] in verb.commands:
        verb = verb.commands[words.pop(0)]
    options = {name for parameter in verb.params for name in (*parameter.opts, *parameter.secondary_opts)}
    options |= {"-h", "--help"}
    unknown = [
        word for word in words if re.match(r"--?[a-z]", word) and word.split("=")[0].rstrip(".,:)") not in options
    ]
    return f"{verb.name} has no {', '.join(unknown)}" if unknown else ""


def verb_of(name: str) -> click.Command:
    module = import_module(f"floodmark.cli.verbs.{VERBS[name]}")
    return next(one for one in vars(module).values() if isinstance(one, click.Command) and one.name == name)


@pytest.mark.parametrize("page", PAGES)
def test_each_command_has_a_verb_and_options_that_exist(page: str) -> None:
    assert {command: reason for command in commands(page) if (reason := wrong(command))} == {}


def test_a_wrong_command_is_seen() -> None:
    assert wrong("floodmark lnad orders") == "no verb lnad"
    assert wrong("floodmark land orders --endd # all") == "land has no --endd"
    assert wrong("floodmark savepoint create totals --keep 24 --nte x") == "create has no --nte"
    assert wrong("floodmark land orders --end | grep x --y") == ""


# ---- Python


def python(page: str) -> Iterator[ast.Module]:
    """Every piece of Python on a page."""
    for found in FENCE.finditer(text_of(page)):
        if found["kind"] == "python" and not found["body"].startswith(" "):  # else a quotation out of an example
            yield ast.parse(found["body"])


def public(node: ast.expr) -> str | None:
    """The name of floodmark's public interface that an expression is, with or without ``fm.``; None if it is none."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in {"fm", "floodmark"}:
        return node.attr
    return node.id if isinstance(node, ast.Name) and node.id in floodmark.__all__ else None


def mistakes(tree: ast.Module) -> Iterator[str]:
    """Names that floodmark does not have, and parameters that what is called does not take."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "floodmark":
            module = import_module(node.module or "")
            yield from (f"from {node.module} import {one.name}" for one in node.names if not has(module, one.name))
        if isinstance(node, ast.Attribute) and public(node) and not has(floodmark, node.attr):
            yield f"fm.{node.attr}"
        if isinstance(node, ast.Call) and (name := public(node.func)) and name not in own and has(floodmark, name):
            parameters = inspect.signature(getattr(floodmark, name)).parameters
            if not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
                keywords = [one.arg for one in node.keywords if one.arg is not None]
                yield from (f"{name}({keyword}=...)" for keyword in keywords if keyword not in parameters)


def has(module: object, name: str) -> bool:
    """Whether a module has an attribute or a submodule."""
    if hasattr(module, name):
        return True
    try:
        import_module(f"{module.__name__}.{name}")  # type: ignore[attr-defined]  # a module
    except ImportError:
        return False
    return True


@pytest.mark.parametrize("page", PAGES)
def test_each_piece_of_python_names_what_exists(page: str) -> None:
    assert [mistake for tree in python(page) for mistake in mistakes(tree)] == []


def test_a_name_that_does_not_exist_is_seen() -> None:
    code = "import floodmark as fm\nfrom floodmark.testing import Ruun\nfm.Sourcee()\nfm.Tumbling('1 hour', ofset=1)"
    assert set(mistakes(ast.parse(code))) == {
        "from floodmark.testing import Ruun",
        "fm.Sourcee",
        "Tumbling(ofset=...)",
    }


# ---- who runs the blocks

RUN = tomllib.loads((ROOT / "tests" / "docs" / "blocks.toml").read_text("utf-8"))
PRINTED = frozenset({"text", "json"})
"""Languages of blocks that show what is printed."""


def counted(text: str) -> dict[str, int]:
    """Language -> number of the blocks of a page that somebody runs."""
    return dict(Counter(found["kind"] for found in FENCE.finditer(text) if found["kind"] not in PRINTED))


def unlisted(page: str, text: str, listed: Mapping[str, Any]) -> list[str]:
    """Blocks of a page of which nobody has written down what runs them; of more than there are, that."""
    there = counted(text)
    of = {kind: listed.get(kind, {}).get("blocks", 0) for kind in there | dict(listed)}
    return [
        f"{page}: {there.get(kind, 0)} blocks of {kind}, {blocks} in tests/docs/blocks.toml"
        for kind, blocks in of.items()
        if there.get(kind, 0) != blocks
    ]


@pytest.mark.parametrize("page", [*PAGES, "floodmark-airflow/README.md"])
def test_each_block_is_run_by_something_that_is_written_down(page: str) -> None:
    assert unlisted(page, text_of(page), RUN.get(page, {})) == []


def test_each_block_of_pages_is_run_by_what_is_there() -> None:
    assert not RUN.keys() - {*PAGES, "floodmark-airflow/README.md"}
    absent = [claim.test for claim in page_runs.claims() if not _is_there(*claim.test.partition("::")[::2])]
    assert absent == []


def test_each_block_has_a_runner_and_the_build_has_its_commands() -> None:
    for page, kinds in RUN.items():
        for kind, entry in kinds.items():
            mine = [claim for claim in page_runs.claims() if (claim.page, claim.kind) == (page, kind)]
            run = frozenset[int]().union(*(claim.numbers for claim in mine))
            assert run == set(range(1, entry["blocks"] + 1)), (page, kind)
    for claim in page_runs.claims():
        if "::" not in claim.test:
            text = (ROOT / claim.test).read_text("utf-8")
            commands = [line for number in claim.numbers for line in page_runs.lines(claim.kind, claim.bodies[number])]
            assert [line for line in commands if line.removeprefix("python ") not in text] == [], claim


def test_a_line_that_a_test_says_it_runs_and_does_not_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fence = "```"
    body = f"{fence}bash\npip install x\nfloodmark land orders  # all\nfloodmark status\n{fence}\n"
    (tmp_path / "runs_page.md").write_text(f"{body}\n## B\n\n{fence}console\n$ floodmark top\nhourly\n{fence}\n")
    monkeypatch.setattr(page_runs, "ROOT", tmp_path)
    one, other = (
        page_runs.Claim("runs_page.md", kind, "test", chosen) for kind, chosen in (("bash", ""), ("console", "title"))
    )
    assert other.numbers == {1}
    monkeypatch.setattr(console_pages, "RAN", [])
    monkeypatch.setattr(page_runs, "RAN", console_pages.RAN)
    console_pages.RAN.append("floodmark land orders")
    assert page_runs.unrun([one], {}) == ["runs_page.md, block 1 of bash: floodmark status"]
    assert page_runs.unrun([one], {"page": "other"}) == []
    assert page_runs.unrun([other], {"title": "B"}) == ["runs_page.md, block 1 of console: floodmark top"]
    console_pages.RAN += ["floodmark status", "floodmark top"]
    assert page_runs.unrun([one, other], {"title": "B"}) == []


def _is_there(file: str, test: str) -> bool:
    path = ROOT / file
    return path.is_file() and (not test or f"\ndef {test}(" in path.read_text("utf-8"))


def test_a_new_block_that_nothing_runs_is_seen() -> None:
    page = "```python\nprint(1)\n```\n\n```text\n1\n```\n\n```bash\nls\n```\n"
    listed = {"python": {"blocks": 1}}
    assert unlisted("page.md", page, listed) == ["page.md: 1 blocks of bash, 0 in tests/docs/blocks.toml"]
    assert unlisted("page.md", "", listed) == ["page.md: 0 blocks of python, 1 in tests/docs/blocks.toml"]
    assert not _is_there("Makefile", "test_nothing")
