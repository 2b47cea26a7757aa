"""Python imports this where it starts: Dagster's daemon looks often, and the process of a run is forked from one that has imported Dagster.

30 seconds between two looks at backfills, 15 between two evaluations of the workspace's sensors, and 60 between two reports of a stream's health become
3, 5 and 20. The process that serves the definitions starts one for each run, which imports for seconds; here multiprocessing's own server of forks
starts it. Drivers of streams are forked where a test asks for that; those on Spark work on the Java of a test that has lent it (``borrowed``).
"""

import os
import sys
from pathlib import Path

DRIVER = "floodmark.control.processes.driver"
FORKS = "FORKED_SERVER"
"""Variable: the address of the tests' server of forks."""
PRELOADED = [
    "dagster._grpc.server",
    "deltalake",
    "pandas",
    "pyspark.sql.connect.session",
    "floodmark.cli.main",
    "floodmark.control.streams.fleet",
    "floodmark.orchestration",
    "forks_checked",
]

if "dagster._daemon" in sys.orig_argv:
    from dagster._core.remote_representation.external import RemoteSensor
    from dagster._daemon import controller

    controller.DEFAULT_DAEMON_INTERVAL_SECONDS = 3
    RemoteSensor.min_interval_seconds = 5
elif {"api", "grpc"} <= set(sys.orig_argv) and sys.platform == "linux":
    import multiprocessing

    support = str(Path(__file__).parent.parent)
    sys.path.append(support)
    os.environ["PYTHONPATH"] = os.pathsep.join([os.environ["PYTHONPATH"], support])  # of the server of forks too
    import forks_alone

    os.environ.update(forks_alone.ALONE)
    contexts = multiprocessing.get_context

    def forking(method=None):
        """As ``multiprocessing.get_context``; where a process would be started anew it is forked."""
        return contexts("forkserver" if method == "spawn" else method)

    multiprocessing.set_forkserver_preload(PRELOADED)
    multiprocessing.get_context = forking
    from floodmark.orchestration import health

    health._LEAST_SECONDS = 20.0
elif "floodmark.cli.main" in sys.orig_argv and "FLOODMARK_TEST_JAVA" in os.environ:
    import subprocess

    begin = subprocess.Popen.__init__

    def begun(self, command, *arguments, env=None, **named):
        """As ``Popen``; a driver of a stream imports this file too."""
        if env is not None and DRIVER in command:
            env = {**env, "PYTHONPATH": os.pathsep.join([env["PYTHONPATH"], str(Path(__file__).parent)])}
        begin(self, command, *arguments, env=env, **named)

    subprocess.Popen.__init__ = begun
elif "floodmark.cli.main" in sys.orig_argv and FORKS in os.environ:
    sys.path.append(str(Path(__file__).parent.parent))
    import forked

    forked.forking(DRIVER)
elif DRIVER in sys.orig_argv and "FLOODMARK_TEST_JAVA" in os.environ:
    sys.path.append(str(Path(__file__).parents[2] / "crash"))
    from borrowed import borrow

    borrow()
