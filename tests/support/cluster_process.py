"""Verbs of a workspace in one process, so in one application of Spark's: python cluster_process.py ENGINE STEP...

A step is ``land``, ``end``, ``bounded:OPERATOR`` or ``unbounded:OPERATOR``. ``saved:OPERATOR`` is the first micro-batch and a savepoint of it, for all engines, in
the shared folder; ``opened:OPERATOR`` goes on from it in a lake beside the workspace. ``fitted:MODEL`` fits a pipeline of Spark ML to what ``windy`` has written. ``ambush:executor`` and ``ambush:worker`` have the next step kill what runs
the first row that it comes to; ``crash:POINT`` has it kill this process. The workspace is in the current folder. A step prints its name and its seconds.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from floodmark import models
from floodmark.cli.shell.invocation import Invocation
from floodmark.cli.shell.loading import open_workspace
from floodmark.control.processes.engine import Computing, OnSpark, computing
from floodmark.core import crash
from floodmark.core.errors import FloodmarkError
from floodmark.core.time import Interval
from floodmark.engines.embedded.state.canonical import export, import_savepoint
from floodmark.engines.spark.state import canonical as of_spark
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.fork import fork
from floodmark.spec.graph.operator import Operator
from floodmark.spec.workspace import Engine


def main(engine: Engine, steps: list[str]) -> None:
    """Do the steps."""
    opened = open_workspace(Invocation(environment="dev"))
    computed, began = computing(opened.workspace.settings, engine=engine), time.monotonic()
    computed.start()
    sys.stdout.write(f"start {time.monotonic() - began:.1f}\n")
    for step in steps:
        began = time.monotonic()
        verb, _, name = step.partition(":")
        lake = Lake.of(opened.workspace.settings)
        if verb == "ambush":
            Path(os.environ["AMBUSH"]).write_text(name)
        elif verb == "crash":
            os.environ[crash.VARIABLE] = name
        elif verb in {"land", "end"}:
            for source in opened.workspace.sources:
                computed.land(source, lake, end=verb == "end", workspace=Path(opened.workspace.settings.folder))
        elif verb == "bounded":
            whole = Lake(f"{lake.root}-bounded", logs=lake.root)
            computed.run_bounded(opened.workspace.operator(name), whole, Interval(), force=True)
        elif verb == "saved":
            _save(computed, opened.workspace.operator(name), lake)
        elif verb == "opened":
            (exported,) = Path(os.environ["SHARED"], "exported").iterdir()
            laptop = fork(lake, import_savepoint(lake, str(exported)), str(Path.cwd().parent / "laptop"), fresh=True)
            computed.run_unbounded(opened.workspace.operator(name), laptop, until_caught_up=True)
        elif verb == "fitted":
            wind_model(lake, name, _pipeline())
        else:
            options = {} if engine == "embedded" else {"files_per_batch": 1}
            computed.run_unbounded(opened.workspace.operator(name), lake, until_caught_up=True, **options)
        sys.stdout.write(f"{step} {time.monotonic() - began:.1f}\n")
        secret = os.environ["SPARK_SECRET"]
        for process in psutil.process_iter(["cmdline"]):
            if any(secret in word for word in process.info["cmdline"] or ()):
                sys.stdout.write(f"the secret is an argument of {process.pid}\n")
        sys.stdout.flush()


def wind_model(lake: Lake, name: str, estimator: Any) -> models.Version:
    """Delays by the wind, fitted to all that ``windy`` has written but the last hours."""
    interval = ("2013-01-01", "2013-01-01T16:00:00")
    about = {"table": "outputs/windy", "features": ("measured_wind",), "target": "delay", "interval": interval}
    return models.fit(lake, name, estimator, **about)


def _pipeline() -> Any:
    from pyspark.ml import Pipeline
    from pyspark.ml.feature import VectorAssembler
    from pyspark.ml.regression import LinearRegression

    joined = VectorAssembler(inputCols=["measured_wind"], outputCol="joined")
    return Pipeline(stages=[joined, LinearRegression(featuresCol="joined", labelCol="delay")])


def _save(computed: Computing, operator: Operator, lake: Lake) -> None:
    stop = threading.Event()
    computed.run_unbounded(operator, lake, files_per_batch=1, stop=stop, on_batch=lambda _: stop.set())
    made, target = savepoints.create(operator.name, lake), str(Path(os.environ["SHARED"], "exported"))
    if isinstance(computed, OnSpark):
        of_spark.export(computed.spark, made, target)
    else:
        export(made, target)


if __name__ == "__main__":
    try:
        main("embedded" if sys.argv[1] == "embedded" else "spark", sys.argv[2:])
    except FloodmarkError as error:
        sys.exit(str(error))
