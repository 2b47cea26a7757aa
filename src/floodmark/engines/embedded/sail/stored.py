"""Tables of a lake as frames of Sail, whatever the name of their folder.

Sail 0.7.2 takes the path of a table for a URL: it finds no commit in a folder whose path has a space, a letter beyond ASCII or ``~``.
Such a folder is read through a link with a plain name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.table import ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.session import SparkSession

_PLAIN = re.compile(r"[\w./=,:@&+-]*", re.ASCII)


def table(spark: SparkSession, path: str, version: int, scratch: Path) -> DataFrame:
    """The rows of a table at a version.

    Args:
        spark: session of Sail.
        path: of the table, on a disk or in a bucket.
        version: of the table.
        scratch: folder that is there for as long as the rows are read.

    Raises:
        CapabilityError: CAPABILITY-038, as ``ranges.without_inexact``.
    """
    plain, number = ranges.without_inexact(path, version, scratch / uuid4().hex)
    return spark.read.format("delta").option("versionAsOf", str(number)).load(_reached(plain, scratch))


def _reached(path: str, scratch: Path) -> str:
    if is_bucket(path) or _PLAIN.fullmatch(path):
        return path
    link = scratch / uuid4().hex
    link.symlink_to(Path(path).absolute(), target_is_directory=True)
    return str(link)
