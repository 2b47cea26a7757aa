"""A day of clicks as they happen and as they arrive: most within seconds, some from telephones that were offline for up to an hour."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

DAY = datetime(2025, 3, 1, tzinfo=UTC)
CAMPAIGNS = ("spring", "summer", "autumn", "winter")
ALERT = 200
"""Clicks of a campaign in an hour at which somebody wants to be told."""
_PER_HOUR = 600
_OFFLINE = 0.04
_USERS = 150
GAP = timedelta(minutes=10)
"""Clicks of a user at most this far apart are one visit."""


@dataclass(frozen=True, slots=True)
class Click:
    """A click.

    Args:
        at: when it happened.
        arrived: when it reached the pipeline.
        campaign: whose advertisement it was.
        user: who clicked.
    """

    at: datetime
    arrived: datetime
    campaign: str
    user: int

    @property
    def hour(self) -> datetime:
        """The hour in which it happened."""
        return self.at.replace(minute=0, second=0, microsecond=0)


Answer = dict[tuple[datetime, str], int]
"""(hour, campaign) -> number of clicks."""


def clicks(hours: int, seed: int = 1) -> list[Click]:
    """The clicks of the day's first hours in order of arrival; the same for the same seed."""
    rng, made = random.Random(seed), list[Click]()
    for _ in range(hours * _PER_HOUR):
        at = DAY + timedelta(seconds=rng.randrange(hours * 3600), milliseconds=rng.randrange(1000))
        offline = rng.random() < _OFFLINE
        delay = timedelta(seconds=rng.uniform(60, 3600) if offline else rng.expovariate(1 / 5))
        campaign = rng.choices(CAMPAIGNS, (4, 3, 2, 1))[0]
        made.append(Click(at, at + delay, campaign, rng.randrange(_USERS)))
    return sorted(made, key=lambda click: (click.arrived, click.at, click.user))


def truth(made: Sequence[Click]) -> Answer:
    """What is right: by the hour in which each click happened."""
    return dict(Counter((click.hour, click.campaign) for click in made))


def visits(made: Iterable[Click]) -> int:
    """The number of visits among clicks, by the moments at which they happened."""
    newest: dict[int, datetime] = {}
    number = 0
    for click in sorted(made, key=lambda click: click.at):
        before = newest.get(click.user)
        number += before is None or click.at - before >= GAP
        newest[click.user] = click.at
    return number


def write(made: Sequence[Click], folder: Path, until: datetime, since: datetime) -> None:
    """The clicks that arrived in between, as a file of JSON lines that appears whole; none where none did, or where it is there already."""
    lines = [
        json.dumps({"at": click.at.isoformat(), "campaign": click.campaign, "user": click.user})
        for click in made
        if since <= click.arrived < until
    ]
    file = folder / f"clicks_{until:%Y%m%dT%H%M}.json"
    if lines and not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.with_suffix(".part").write_text("\n".join(lines) + "\n")
        file.with_suffix(".part").replace(file)
