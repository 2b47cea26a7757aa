"""What Spark answers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def answers(spark: Any, rows: Path, texts: Sequence[str], folder: Path) -> list[str]:
    """Expression by expression its type and, row by row, its value or ``!`` and an error, between tabs; or ``refused`` and why.

    Args:
        spark: a classic session.
        rows: a Parquet file.
        texts: expressions over its columns.
        folder: for what goes between the processes.
    """
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    frame = spark.read.parquet(str(rows)).coalesce(1)
    values = frame._jdf.queryExecution().executedPlan().executeCollect()
    frame = spark.read.parquet(str(rows))
    return _asked(jvm, gateway, "Answers", (frame._jdf, values), texts, folder)


def casts(spark: Any, rows: Path, texts: Sequence[str], folder: Path) -> list[str]:
    """Expression by expression its columns with the types Spark casts them to, as ``Casts.java`` writes them.

    Args:
        spark: a classic session.
        rows: a Parquet file.
        texts: expressions over its columns.
        folder: for what goes between the processes.
    """
    frame = spark.read.parquet(str(rows))
    return _asked(spark._jvm, spark.sparkContext._gateway, "Casts", (frame._jdf, None), texts, folder)


def _asked(jvm: Any, gateway: Any, name: str, given: Sequence[Any], texts: Sequence[str], folder: Path) -> list[str]:
    arguments = gateway.new_array(jvm.java.lang.Object, len(given))
    for place, argument in enumerate(given):
        arguments[place] = argument
    made = _compiled(jvm, name)
    asked, said = folder / "asked.txt", folder / "said.txt"
    asked.write_text("".join(text.replace("\\", "\\\\").replace("\n", "\\n") + "\n" for text in texts))
    made.newInstance(arguments).apply(str(asked), str(said))
    return said.read_text().split("\n")[:-1]


@cache
def _compiled(jvm: Any, name: str) -> Any:
    """The constructor of a class beside this file; Py4J takes two classes of one name for one."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook((HERE / f"{name}.java").read_text())
    return compiler.getClassLoader().loadClass(name).getConstructors()[0]
