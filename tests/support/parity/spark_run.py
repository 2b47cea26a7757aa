"""Asks Spark every probe, or those of some functions, and keeps its answers: ``python -m parity.spark_run FOLDER [NAME...]``."""

from __future__ import annotations

import pickle
import sys
import time
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from parity import aggregates, implicit_casts, null_order, probes, spark_side, values
from parity.values import table_of

from floodmark.engines.spark.session.builder import spark_session

CHUNK = 1000
Answers = dict[str, str]


def ask(spark: object, folder: Path, texts: Iterable[str]) -> Answers:
    """Expression -> its type and values, or ``refused``."""
    found: Answers = {}
    for name in ("one", "two"):
        mine = [text for text in texts if table_of(text) == name]
        for start in range(0, len(mine), CHUNK):
            some = mine[start : start + CHUNK]
            found |= dict(zip(some, spark_side.answers(spark, folder / f"{name}.parquet", some, folder), strict=True))
    return found


def keep(folder: Path, found: Answers) -> None:
    """The answers in ``folder/spark.pickle``, each compressed."""
    small = {text: zlib.compress(answer.encode(), 1) for text, answer in found.items()}
    (folder / "spark.pickle").write_bytes(pickle.dumps(small))


def kept(folder: Path) -> dict[str, bytes]:
    """The answers that were kept, compressed."""
    if not (folder / "spark.pickle").exists():
        return {}
    return pickle.loads((folder / "spark.pickle").read_bytes())  # written by ``keep``


def main(folder: Path, names: Sequence[str] = ()) -> None:
    """Answers of all probes, or of those whose outermost call is one of some functions, in ``folder/spark.pickle``."""
    folder.mkdir(parents=True, exist_ok=True)
    values.write(folder)
    spark = spark_session(memory="3g")
    begun = time.monotonic()
    found: Answers = {text: zlib.decompress(answer).decode() for text, answer in kept(folder).items()}
    for stage in (probes.special, probes.usual):
        found |= ask(spark, folder, [text for text in probes.readable(stage(), names) if text not in found])
        sys.stdout.write(f"{len(found)} after {time.monotonic() - begun:.0f} s\n")
        keep(folder, found)
    accepted = [text for text, answer in found.items() if not answer.startswith("refused")]
    more = [text for text in probes.few(probes.written(accepted), names=names) if text not in found]
    found |= ask(spark, folder, more)
    keep(folder, found)
    implicit_casts.write(
        spark, folder, [text for text, answer in found.items() if not answer.startswith("refused")], names
    )
    null_order.write(spark, folder, [text for text, answer in found.items() if not answer.startswith("refused")], names)
    for kind in () if names else aggregates.KINDS:
        aggregates.write(folder, kind)
    sums = {} if names else aggregates.answers(lambda sql: spark.sql(sql).toArrow(), folder, sail=False)
    (folder / "aggregates.pickle").write_bytes(pickle.dumps(sums))
    sys.stdout.write(f"{len(found)} probes in {time.monotonic() - begun:.0f} s\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
