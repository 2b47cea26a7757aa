"""The session of a verb, of Spark or of the embedded engine, and the lake it writes."""

# ruff: noqa: PLC0415 - what is slow to import is imported when it is needed

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.cli.console import Console
from floodmark.cli.loading import Opened
from floodmark.core import machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.engines.embedded.session import Sail
    from floodmark.lake.paths import Lake


def start(opened: Opened, console: Console, *, writes: bool = True) -> tuple[SparkSession, Lake]:
    """Start Spark with the workspace's settings.

    Args:
        opened: the workspace.
        console: says that it starts.
        writes: the verb writes into the lake, which must be possible.

    Raises:
        SetupError: SETUP-001 no Java, SETUP-002 no Delta jars, SETUP-051 a lake that cannot be written, SETUP-054 no such master.
    """
    settings = opened.workspace.settings
    if writes:
        machine.refuse_read_only(opened.lake, f"lake {opened.lake}")
    with console.step("starting Spark"):
        from floodmark.engines.spark.session.builder import spark_session
        from floodmark.lake.paths import Lake

        spark = spark_session(
            app="floodmark",
            cores=settings.master,
            shuffle_partitions=settings.shuffle_partitions,
            extra=dict(settings.spark),
        )
    return spark, Lake.of(opened.workspace.settings)


def start_embedded(opened: Opened, console: Console) -> Sail:
    """The sessions of the embedded engine, with the workspace's settings; a server starts with the first one.

    Raises:
        SetupError: SETUP-051 a lake that cannot be written, SETUP-070 and 071 pysail is missing or of another version.
    """
    machine.refuse_read_only(opened.lake, f"lake {opened.lake}")
    from floodmark.engines.embedded.server import check_installed

    check_installed()  # before anything that needs it is imported
    with console.step("starting the embedded engine"):
        from floodmark.engines.embedded.session import Sail

        sail = Sail(opened.workspace.settings.memory)
        sail.begin()
    return sail
