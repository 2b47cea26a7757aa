"""floodmark in Airflow: its verbs as operators, its complete asset partitions as asset events, and DAGs made of a workspace.

Nothing of floodmark runs inside Airflow's processes: an operator starts the verb of the command line in the workspace's own environment, and waits.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from floodmark_airflow.factory import dags
    from floodmark_airflow.operators import (
        Command,
        Land,
        Partitions,
        Rollback,
        Rollout,
        Run,
        Savepoint,
        Start,
        Stop,
        Upgrade,
    )
    from floodmark_airflow.sensors import PartitionSensor
    from floodmark_airflow.workspace import Workspace

__all__ = [
    "Command",
    "Land",
    "PartitionSensor",
    "Partitions",
    "Rollback",
    "Rollout",
    "Run",
    "Savepoint",
    "Start",
    "Stop",
    "Upgrade",
    "Workspace",
    "dags",
]
_MODULES = {"PartitionSensor": "sensors", "Workspace": "workspace", "dags": "factory"}


def __getattr__(name: str) -> Any:
    """Import on first use: Airflow lists its providers while it is itself half imported."""
    if name not in __all__:
        msg = f"module '{__name__}' has no attribute '{name}'"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'operators')}"), name)
