"""Python imports this where it starts: Dagster's daemon looks at backfills, and evaluates sensors, more often than it has settings for.

30 seconds, of backfills and of the workspace's sensors, become 3 and 5.
"""

import sys

if "dagster._daemon" in sys.orig_argv:
    from dagster._core.remote_representation.external import RemoteSensor
    from dagster._daemon import controller

    controller.DEFAULT_DAEMON_INTERVAL_SECONDS = 3
    RemoteSensor.min_interval_seconds = 5
