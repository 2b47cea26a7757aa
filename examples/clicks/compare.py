"""``python compare.py``: a day of clicks through a pipeline of hourly batches, through a lambda pair and through floodmark, and what each had wrong.

All three get the same clicks at the same moments, and their process is killed once, in the morning: floodmark's by SIGKILL in the middle of a
micro-batch, the fast layer of the pair loses what it has not stored. The moments are those of arrival, simulated; floodmark looks every ten minutes here.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import hourly
import pair
import workspace as one
from arrivals import ALERT, DAY, Answer, Click, clicks, truth, visits
from deltalake import DeltaTable
from follow import ticks

from floodmark.control.processes.engine import computing
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake

HERE = Path(__file__).resolve().parent
_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a pipeline had, and when.

    Args:
        name: of the pipeline.
        programs: that have to run, and be watched.
        texts: programs that say how a click is counted.
        views: (moment, what people saw then), in order.
        last: what people saw when the day was over and all was computed.
        right: what is right.
        visits: number of visits that it counted.
        made: the clicks.
    """

    name: str
    programs: Sequence[str]
    texts: int
    views: Sequence[tuple[datetime, Answer]]
    last: Answer
    right: Answer
    visits: int
    made: Sequence[Click] = field(repr=False)

    @property
    def wrong(self) -> int:
        """Answers that are wrong for good."""
        return sum(self.last.get(key) != self.right.get(key) for key in self.last.keys() | self.right.keys())

    @property
    def misfiled(self) -> int:
        """Clicks in an hour that is not theirs, for good."""
        return sum(max(0, number - self.right.get(key, 0)) for key, number in self.last.items())

    def wrong_hours(self) -> float:
        """The longest time, in hours, that an answer was wrong after its hour was over and everything had arrived."""
        longest = timedelta()
        for key, number in self.right.items():
            settled = [(moment, view.get(key) == number) for moment, view in self.views if moment >= key[0] + 3 * _HOUR]
            wrong = (end - start for (start, right), (end, _) in pairwise(settled) if not right)
            longest = max(longest, sum(wrong, timedelta()))
        return longest / _HOUR

    def minutes_to_alert(self) -> list[float]:
        """Per campaign and hour with enough clicks, minutes from the arrival of the click that makes it an alert until the answer shows it."""
        waits = []
        for (hour, campaign), number in self.right.items():
            if number < ALERT:
                continue
            arrived = [click.arrived for click in self.made if (click.hour, click.campaign) == (hour, campaign)][
                ALERT - 1
            ]
            shown = [
                moment for moment, view in self.views if moment >= arrived and view.get((hour, campaign), 0) >= ALERT
            ]
            waits.append(((shown[0] if shown else self.views[-1][0]) - arrived) / _MINUTE)
        return waits


def by_hourly_batches(made: Sequence[Click], moments: Sequence[datetime]) -> Outcome:
    """The pipeline of hourly batches."""
    jobs, views, table = hourly.by_hour(made), list[tuple[datetime, Answer]](), dict[tuple[datetime, str], int]()
    for moment in sorted({*moments, *jobs}):
        table = table | jobs.get(moment, {})
        views.append((moment, table))
    return _outcome("hourly batches", hourly.PROGRAMS, 1, views, table, hourly.visits_by_hour(made), made)


def by_pair(made: Sequence[Click], moments: Sequence[datetime], crash: datetime) -> Outcome:
    """The lambda pair: what the fast layer has until the night, then what the slow one has."""
    layer, views, at = pair.FastLayer(), list[tuple[datetime, Answer]](), 0
    for moment in moments:
        if moment == crash:
            layer.crash()
        while at < len(made) and made[at].arrived < moment:
            layer.on_click(made[at])
            at += 1
        layer.store(moment)
        views.append((moment, layer.view))
    return _outcome("lambda pair", pair.PROGRAMS, 2, views, pair.nightly(made), visits(made), made)


def by_floodmark(
    made: Sequence[Click], moments: Sequence[datetime], crash: datetime, hours: int, folder: Path
) -> Outcome:
    """The stream of floodmark, in a process that is killed; then the same operator bounded, over the whole log, into another lake.

    Raises:
        RuntimeError: both differ, or the stream failed.
    """
    views = list[tuple[datetime, Answer]]()
    while len(views) < len(moments):
        command = [sys.executable, "-m", "follow", str(folder), str(hours), str(len(views))]
        process = subprocess.Popen(
            command, cwd=HERE, env=_environment(), stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert process.stdout is not None
        for line in process.stdout:
            said = json.loads(line)
            views.append(
                (
                    moments[said["tick"]],
                    {(datetime.fromisoformat(at), campaign): n for at, campaign, n in said["answers"]},
                )
            )
            if moments[said["tick"]] == crash:
                os.killpg(process.pid, signal.SIGKILL)
                break
        if process.wait() not in {0, -signal.SIGKILL}:
            raise RuntimeError(f"the stream ended with status {process.returncode}")
    last = views[-1][1]
    bounded, number = _bounded(folder)
    if bounded != last:
        raise RuntimeError(f"the stream has {last}, and the bounded run {bounded}")
    return _outcome("floodmark", one.PROGRAMS, 1, views, last, number, made)


def _bounded(folder: Path) -> tuple[Answer, int]:
    """Both operators over the whole log: the answers, and the number of visits."""
    lake, engine = Lake(str(folder / "again"), logs=str(folder / "lake")), computing(one.workspace().settings)
    for operator in (one.clicks_per_hour, one.visits):
        engine.run_bounded(operator, lake, Interval())
    number = DeltaTable(lake.output("visits__current")).to_pyarrow_table(columns=["user"]).num_rows
    rows = DeltaTable(lake.output("clicks_per_hour__current")).to_pyarrow_table().to_pylist()
    return {(row["window_start"], row["campaign"]): row["clicks"] for row in rows}, number


def _outcome(
    name: str,
    programs: Sequence[str],
    texts: int,
    views: list[tuple[datetime, Answer]],
    last: Answer,
    number: int,
    made: Sequence[Click],
) -> Outcome:
    return Outcome(
        visits=number, name=name, programs=programs, texts=texts, views=views, last=last, right=truth(made), made=made
    )


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("FLOODMARK_")}


LINES: dict[str, Callable[[Outcome], str]] = {
    "programs that have to run": lambda of: str(len(of.programs)),
    "texts that say how a click is counted": lambda of: str(of.texts),
    "clicks in another hour than theirs, for good": lambda of: f"{of.misfiled:,}",
    "answers that are wrong for good": lambda of: f"{of.wrong} of {len(of.right)}",
    "longest time that an answer was wrong, hours": lambda of: f"{of.wrong_hours():.1f}",
    "visits that were cut at a border or counted twice": lambda of: f"{of.visits - visits(of.made):,}",
    f"minutes from click {ALERT} to the alert, median": lambda of: f"{statistics.median(of.minutes_to_alert()):.0f}",
    f"minutes from click {ALERT} to the alert, longest": lambda of: f"{max(of.minutes_to_alert()):.0f}",
}


def compare(hours: int, folder: Path) -> list[Outcome]:
    """All three over the day's first hours; killed in the middle."""
    made, moments = clicks(hours), ticks(hours)
    crash = DAY + hours // 2 * _HOUR + timedelta(minutes=40)
    return [
        by_hourly_batches(made, moments),
        by_pair(made, moments, crash),
        by_floodmark(made, moments, crash, hours, folder),
    ]


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=24, help="of the day, 4 or more")
    hours = parser.parse_args().hours
    with TemporaryDirectory(prefix="clicks-") as place:
        outcomes = compare(hours, Path(place))
    print(
        f"{len(outcomes[0].made):,} clicks of {hours} hours; each pipeline loses its process once, after {hours // 2} hours\n"
    )
    width = max(map(len, LINES))
    print(" " * width + "".join(f"{outcome.name:>16}" for outcome in outcomes))
    for name, line in LINES.items():
        print(f"{name:<{width}}" + "".join(f"{line(outcome):>16}" for outcome in outcomes))


if __name__ == "__main__":
    main()
