"""Every verb ends well on a disk and where the lake is in a bucket: those of ``bench/verb_costs.py`` that no supervisor is needed for."""

from __future__ import annotations

import pytest

from bench import verb_costs


@pytest.mark.soak
@pytest.mark.feature("F12")
@pytest.mark.parametrize("part", [part for part in verb_costs.PARTS if part != "supervised"])
@pytest.mark.parametrize("column", ["disk", "bucket"])
def test_every_verb_ends_well(column: str, part: str) -> None:
    measured = list(verb_costs.measured(column, part))
    assert [took.verb for took in measured] == [" ".join(verb) for verb in verb_costs.PARTS[part]]
    assert not {took.verb: took.failure for took in measured if took.failure}
    assert column == "disk" or all(
        took.requests for took in measured if took.verb.split()[0] in {"land", "run", "status", "apply"}
    )
