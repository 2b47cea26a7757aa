"""Joins of bounded runs that the engine itself computes: the rows and event times of the kernel."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from sql_tables import TABLES, Flight, Weather, flights, log_of, weather

from floodmark import sql_operator
from floodmark.control.processes.engine import Computing
from floodmark.core.time import Interval, to_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.engines.frames.fast import joins
from floodmark.lake.folder.paths import Lake
from floodmark.spec.graph.steps import KeyedProcess
from floodmark.spec.values.schema import ROW
from floodmark.testing.lakes import land, outputs

HEAD = "SELECT f.flight, f.origin"
JOINS = {
    "inner": f"{HEAD}, w.temp FROM flights AS f JOIN weather AS w ON f.origin = w.origin",
    "left": f"{HEAD}, w.temp FROM flights AS f LEFT JOIN weather AS w ON f.origin = w.origin AND f.delay = w.delay AND w.temp > f.flight",
    "right": f"{HEAD}, w.temp, w.delay FROM flights AS f RIGHT JOIN weather AS w ON f.delay = w.delay",
    "full": f"{HEAD}, w.temp, w.origin FROM flights AS f FULL JOIN weather AS w ON f.origin = w.origin AND f.delay = w.delay",
    "semi": "SELECT flight, delay FROM flights WHERE delay IN (SELECT delay FROM weather WHERE temp > 20)",
    "anti": "SELECT f.flight, f.tail FROM flights AS f WHERE NOT EXISTS (SELECT 1 FROM weather AS w WHERE w.delay = f.delay)",
    "not in": "SELECT flight, delay FROM flights WHERE delay NOT IN (SELECT delay FROM weather WHERE temp > 31 AND delay IS NOT NULL)",
    "cross": "SELECT f.flight, w.temp FROM flights AS f JOIN weather AS w ON f.flight < w.temp",
}  # fmt: skip


def check(engine: Computing, folder: Path, case: str) -> None:
    """A bounded run over landed rows, some of them twice and late, has the rows of the kernel with their event times."""
    operator = sql_operator("together", f"{JOINS[case]} EMIT CHANGES", inputs=TABLES)
    step = operator.stateful
    assert isinstance(step, KeyedProcess)
    assert joins.possible(operator, step, Interval())
    rows = {"flights": flights(2, 30), "weather": weather(2, 20)}
    rows["flights"] += rows["flights"][:3]
    lake, logs = Lake(str(folder)), dict[str, Any]()
    for read in operator.inputs:
        contract, time = {"flights": (Flight, "scheduled"), "weather": (Weather, "observed")}[read.table]
        log = log_of(contract, rows[read.table], time)
        log.end()
        land(lake, operator, log, name=read.name)
        logs[read.name] = log.table()
    names = operator.outputs[0].schema.names
    kernel = MemoryRun(operator).batch(logs)[""].to_pylist()
    engine.run_bounded(operator, lake, Interval(), force=True)
    engines = outputs(lake, operator)[""].to_pylist()

    def counted(table: list[dict[str, Any]]) -> Counter[Any]:
        found = [row for row in table if row["_kind"] <= ROW]
        assert all(row["_kind"] == ROW for row in found)
        moment = [
            row["_event_time"] if isinstance(row["_event_time"], int) else to_ms(row["_event_time"]) for row in found
        ]
        return Counter((at, *(row[name] for name in names)) for at, row in zip(moment, found, strict=True))

    assert counted(engines) == counted(kernel)
    assert counted(engines)
    current = operator.outputs[0].current
    if current is not None:
        assert counted(DeltaTable(lake.output(current.table)).to_pyarrow_table().to_pylist()) == counted(kernel)
