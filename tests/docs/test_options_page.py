"""What may be asked for is the same on the command line, in Dagster and on docs/options.md."""

from __future__ import annotations

import importlib
from typing import Any

import click
import pytest

from floodmark.core.errors import DefinitionError
from floodmark.lifecycle.requests import Option, options

from .features_page import ROOT
from .options_page import PLACES, page

WITH_VERBS = [(request, verb) for request, (verbs, _) in PLACES.items() for verb in verbs]


def command(verb: str) -> click.Command:
    """A verb with its options."""
    root: Any = importlib.import_module("floodmark.cli.main").cli
    for part in verb.split():
        root = root.get_command(click.Context(root), part)
    return root  # type: ignore[no-any-return]


def test_the_page_is_current() -> None:
    found = (ROOT / "docs" / "options.md").read_text("utf-8")
    assert found == page(), "run: python tests/docs/options_page.py > docs/options.md"


@pytest.mark.parametrize(("request_", "verb"), WITH_VERBS, ids=[verb for _, verb in WITH_VERBS])
def test_a_verb_has_the_options_of_its_request(request_: type, verb: str) -> None:
    by_flag = {flag: one for one in command(verb).params for flag in one.opts if isinstance(one, click.Option)}
    for one in options(request_):
        assert by_flag[one.option_string].help == one.says  # type: ignore[attr-defined]
        assert by_flag[one.option_string].multiple is (one.kind in {tuple, dict})


@pytest.mark.parametrize("request_", PLACES, ids=lambda one: one.__name__)
def test_a_config_has_the_fields_of_its_request(request_: type) -> None:
    from floodmark.orchestration.config import config_of, request_of

    config, needed = config_of(request_), {"arm": "b"} if "Promotion" in request_.__name__ else {}
    assert {name: field.description for name, field in config.model_fields.items()} == {
        one.configured: one.says for one in options(request_)
    }
    assert request_of(request_, config(**needed)) == request_(**needed)


def test_numbers_stay_within_their_bounds_wherever_they_are_given() -> None:
    from click.testing import CliRunner

    from floodmark.orchestration.config import config_of

    for request, (verbs, _) in PLACES.items():
        for one in (one for one in options(request) if one.least is not None):
            answer = CliRunner().invoke(command(verbs[0]), ["x", f"{one.option_string}=-1"])
            assert answer.exit_code == click.UsageError.exit_code
            assert one.option_string in answer.output
            with pytest.raises(ValueError, match="greater than or equal to 0"):
                config_of(request)(**{one.configured: -1})


SHARES = [(request, verb, one) for request, verb in WITH_VERBS for one in options(request) if one.share]


@pytest.mark.parametrize(("request_", "verb", "one"), SHARES, ids=[f"{verb} {one.name}" for _, verb, one in SHARES])
def test_a_share_is_a_number_or_a_percentage_wherever_it_is_given(request_: type, verb: str, one: Option) -> None:
    from floodmark.orchestration.config import config_of, request_of

    (option,) = (known for known in command(verb).params if known.name == one.name)
    for given in ("10%", " 10 %", "0.1", "0.10"):
        assert option.process_value(click.Context(command(verb)), given) == 0.1
        for configured in (given, 0.1):
            config = config_of(request_)(**{one.configured: configured})
            assert getattr(request_of(request_, config), one.name) == 0.1
    for wrong in ("10", "101%", "-1%", "nan", "a tenth", "%", ""):
        with pytest.raises(
            click.BadParameter,
            match=rf"{one.option_string} {wrong}: expected a share of 0 to 1, as 0.1, or a percentage, as 10%",
        ):
            option.process_value(click.Context(command(verb)), wrong)
        with pytest.raises(DefinitionError, match=rf"DEFINITION-163 config, {one.configured}: .*{one.configured}: 10%"):
            request_of(request_, config_of(request_)(**{one.configured: wrong}))
    with pytest.raises(DefinitionError, match="DEFINITION-163"):
        request_of(request_, config_of(request_)(**{one.configured: True}))


def test_pairs_are_pairs_and_each_name_is_given_once() -> None:
    from click.testing import CliRunner

    for wrong, words in (("b", "--arm b: it is NAME=CODE"), ("=x", "it is NAME=CODE"), ("a=1", "a second one for it")):
        answer = CliRunner().invoke(command("experiment start"), ["x", "--of", "y", "--arm", "a=2", "--arm", wrong])
        assert answer.exit_code == click.UsageError.exit_code
        assert words in " ".join(answer.output.replace("│", " ").split())
