"""A stream that several teams share, and scripts of analysts over it: each `.sql` file beside this one is an operator."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from floodmark import BoundedOutOfOrderness, Contract, EventTime, Files, Settings, Source, Stream, Workspace, operator
from floodmark import sql_operators as scripts_of


class Play(Contract):
    """A round of a game."""

    at: EventTime
    player: str
    game: str
    level: int = Field(ge=1)
    won: bool
    cents: int = Field(ge=0, description="what was bought meanwhile")


plays = Source(
    "plays",
    contract=Play,
    connector=Files("inbox", format="csv", min_age="0 s"),
    watermark=BoundedOutOfOrderness("5 minutes"),
)


@operator
def rounds(plays: Stream[Play]) -> Stream:
    """The stream that the teams share: rounds of players, without those of the company's robots."""
    return plays.filter("player NOT LIKE 'robot-%'")


scripts = scripts_of(Path(__file__).parent, rounds=rounds)
"""The analysts' operators, by the names of their files."""


def workspace(environment: str = "dev") -> Workspace:
    """The shared stream and all scripts."""
    engine = "embedded" if environment == "dev" else "spark"
    operators = [rounds, *(value for name, value in vars(scripts).items() if not name.startswith("_"))]
    return Workspace(sources=[plays], operators=operators, settings=Settings(engine=engine))
