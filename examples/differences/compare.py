"""``python compare.py [FOLDER]``: three differences between Spark's own Structured Streaming and floodmark, over the same six orders.

Spark is needed: ``pip install 'floodmark[spark]'`` and Java. floodmark runs on the embedded engine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from arrivals import arrive, forget
from pyspark.sql import SparkSession
from raw_spark import Answer, differences

from floodmark.engines.spark.session.builder import spark_session

HERE = Path(__file__).parent


def floodmark(folder: Path, *arguments: str, aggregate: str = "sum") -> str:
    """What a verb prints, with the operator's aggregate.

    Raises:
        RuntimeError: the verb has failed.
    """
    command = [sys.executable, "-m", "floodmark.cli.main", *arguments]
    environment = os.environ | {"AGGREGATE": aggregate}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


def answer(folder: Path, table: str = "hourly", time: str = "window_start", aggregate: str = "sum") -> Answer:
    """The rows of an output: {hour: cents}."""
    statement = f"SELECT date_format({time}, 'HH:mm') AS hour, cents FROM {table}"
    lines = floodmark(folder, "sql", statement, "--json", aggregate=aggregate).splitlines()
    return {row["hour"]: row["cents"] for row in map(json.loads, lines)}


def with_floodmark(folder: Path) -> tuple[dict[str, Answer], str]:
    """The answers of floodmark over the same orders, and what ``plan`` says of the maximum in place of the sum."""
    for name in ("workspace.py", "pyproject.toml"):
        shutil.copy(HERE / name, folder)
    inbox, follow = folder / "inbox", ("run", "hourly", "--unbounded", "--until-caught-up")
    for number in (0, 1):
        arrive(inbox, number)
    floodmark(folder, "land", "orders")
    floodmark(folder, *follow)
    plan = floodmark(folder, "plan", "hourly", aggregate="max")
    arrive(inbox, 2)
    floodmark(folder, "land", "orders", "--end")
    floodmark(folder, *follow)
    answers = {"stream": answer(folder), "late": answer(folder, "hourly__late", "at")}
    floodmark(folder, "run", "hourly", "--force")
    answers["batch"] = answer(folder)
    forget(inbox)
    floodmark(folder, "apply", "hourly", "--rebuild", aggregate="max")
    return answers | {"rebuilt": answer(folder, aggregate="max")}, plan


def report(spark: dict[str, Answer], ours: dict[str, Answer], plan: str) -> str:
    """The three differences as text."""
    lines = (
        "1. The sum becomes a maximum, and the stream resumes from its checkpoint.",
        f"   Spark, without an error:    {hours(spark['changed'])} (the largest order of that hour is 500)",
        f"   floodmark, before it runs:  plan says {plan.splitlines()[1].split(': ')[1]}",
        "2. The results are computed anew when the source has lost its two oldest files.",
        f"   Spark, from the source:     {hours(spark['rebuilt'])}",
        f"   floodmark, from its log:    {hours(ours['rebuilt'])}",
        "3. One query as a stream and as a batch; an order of 08:40 comes too late.",
        f"   Spark, stream:              {hours(spark['stream'])}",
        f"   Spark, batch:               {hours(spark['batch'])}",
        f"   floodmark, unbounded:       {hours(ours['stream'])}",
        f"   floodmark, bounded:         {hours(ours['batch'])}",
        f"   floodmark, the late order:  {hours(ours['late'])}, in hourly__late",
    )
    return "".join(f"{line}\n" for line in lines)


def hours(values: Answer) -> str:
    """An answer as text, in order of time."""
    return ", ".join(f"{hour} {cents}" for hour, cents in sorted(values.items()))


def main(folder: Path, session: SparkSession) -> str:
    """Compute the answers below a folder; the report."""
    for name in ("spark", "floodmark"):
        (folder / name).mkdir(parents=True)
    return report(differences(session, folder / "spark"), *with_floodmark(folder / "floodmark"))


if __name__ == "__main__":
    with TemporaryDirectory() as empty:
        print(main(Path(sys.argv[1] if len(sys.argv) > 1 else empty), spark_session()), end="")
