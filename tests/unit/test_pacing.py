"""How far micro-batches are apart, and what of a run is a replay."""

from __future__ import annotations

import pytest

import floodmark as fm
from floodmark.core.errors import DefinitionError
from floodmark.engines.pacing import Pace
from floodmark.observe.replayed import Replayed


@pytest.mark.feature("N4")
def test_the_next_micro_batch_starts_an_interval_after_the_last_start_and_a_pause_after_its_end() -> None:
    clock = [100.0]
    pace = Pace(interval=10, pause=4, now=lambda: clock[0])
    assert pace.left == 0
    pace.begin()
    clock[0] = 103
    pace.end()
    assert pace.left == 7, "the interval is longer"
    clock[0] = 110
    assert pace.left == 0
    pace.begin()
    clock[0] = 119
    pace.end()
    assert pace.left == 4, "the pause is longer"


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"interval": "-1 second"}, "DEFINITION-097"),
        ({"pause": "-1 ms"}, "DEFINITION-097"),
        ({"files": 0}, "DEFINITION-097"),
        ({"timeout": "0 s"}, "DEFINITION-097"),
        ({"timeout": "soon"}, "DEFINITION-001"),
        ({"interval": "often"}, "DEFINITION-001"),
    ],
)
def test_settings_that_no_run_could_follow_are_refused(wrong: dict[str, object], code: str) -> None:
    with pytest.raises(DefinitionError) as refusal:
        fm.Checkpoints(**wrong)
    assert refusal.value.code == code


def test_settings_are_options_of_a_run_and_unset_ones_are_the_engines() -> None:
    assert fm.Checkpoints().options == {"pause_seconds": 0.0, "files_per_batch": None}
    asked = fm.Checkpoints(interval="1500 ms", pause="1 second", files=3)
    assert asked.options == {"interval_seconds": 1.5, "pause_seconds": 1.0, "files_per_batch": 3}


def test_a_replay_says_how_much_faster_than_live_it_was() -> None:
    assert f"{Replayed(30 * 86_400_000, 2.0)}" == "replayed 30 d of event time, 1,296,000 times as fast as live"
