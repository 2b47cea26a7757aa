"""``python -m demo.feed inbox 1day/s``: the year's files arrive in the inbox one by one, as fast as asked for."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import click

from demo.inbox import is_written, write_inbox
from floodmark.core.time import span

_DAY = 86_400_000


@click.command("feed")
@click.argument("inbox", type=click.Path(path_type=Path))
@click.argument("speed")
def feed(inbox: Path, speed: str) -> None:
    """Let the year's flights and weather arrive in INBOX at SPEED, such as 1day/s or 6h/s of their time."""
    pause = pause_seconds(speed)
    if is_written(inbox):
        click.echo(f"{inbox} has the whole year already; to let it arrive anew: make clean")
        return
    year = inbox.absolute().parent / ".floodmark" / "feed"
    write_inbox(year)
    for names in arrivals(year):
        missing = [name for name in names if not (inbox / name).exists()]
        for name in missing:
            appear(year / name, inbox / name)
        if missing:
            time.sleep(pause)
    for folder in ("flights", "weather"):
        (inbox / folder / PART).unlink(missing_ok=True)
    shutil.copyfile(year / "_complete", inbox / "_complete")
    shutil.rmtree(year)


def pause_seconds(speed: str) -> float:
    """(``1day/s``) -> seconds between two days."""
    length, _, unit = speed.strip().rpartition("/")
    milliseconds = span(length, "speed") if unit.strip() == "s" else 0
    if milliseconds <= 0:
        msg = f"{speed!r} is no length of time per second; for example: make up SPEED=1day/s"
        raise click.BadParameter(msg)
    return _DAY / milliseconds


PART = "next.csv.gz.part"
"""A file that is always there while others are to come: no landing takes the inbox for complete."""


def arrivals(year: Path) -> Iterator[list[str]]:
    """The files of each day, in order: its flights, and the weather of a month that begins with it."""
    months = sorted(path.name for path in (year / "weather").iterdir())
    for flights in sorted((year / "flights").iterdir()):
        begun = f"weather_{flights.name.removeprefix('known_')[:7]}.csv"
        yield [*(f"weather/{name}" for name in months if name <= begun), f"flights/{flights.name}"]
        months = [name for name in months if name > begun]


def appear(made: Path, file: Path) -> None:
    """Copy a file so that it appears whole, with its date."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(PART)
    shutil.copy2(made, part)
    part.replace(file)
    part.touch()


if __name__ == "__main__":
    feed()
