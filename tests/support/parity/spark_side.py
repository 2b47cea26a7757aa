"""What Spark answers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("Answers.java")


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
    made = _compiled(jvm)
    arguments = gateway.new_array(jvm.java.lang.Object, 2)
    arguments[0], arguments[1] = frame._jdf, values
    asked, said = folder / "asked.txt", folder / "said.txt"
    asked.write_text("".join(text.replace("\\", "\\\\").replace("\n", "\\n") + "\n" for text in texts))
    made.newInstance(arguments).apply(str(asked), str(said))
    return said.read_text().split("\n")[:-1]


@cache
def _compiled(jvm: Any) -> Any:
    """The constructor of ``Answers``; Py4J takes two classes of one name for one."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(SOURCE.read_text())
    return compiler.getClassLoader().loadClass("Answers").getConstructors()[0]
