"""Settings per environment; environment variables such as ``FLOODMARK_LAKE`` and ``FLOODMARK_LOGS`` override them."""

from __future__ import annotations

from pydantic_settings import BaseSettings, SettingsConfigDict

from floodmark import Settings
from floodmark.spec.workspace import Engine

_LAKES = {"dev": "lake", "prod": "lake-prod"}
_ENGINES: dict[str, Engine] = {"dev": "embedded", "prod": "spark"}
"""``embedded`` needs no Java."""


class Variables(BaseSettings):
    """Settings that environment variables can override."""

    model_config = SettingsConfigDict(env_prefix="FLOODMARK_", frozen=True)

    environment: str = "dev"
    """The environment whose settings Dagster uses; the command line has ``--environment``."""
    lake: str | None = None
    """Root of the tables."""
    logs: str | None = None
    """Root of a lake whose logs are read instead of the lake's own logs. Nothing is written there."""
    folder: str = "."
    """The folder that relative paths of sources start from; relative to the workspace."""
    engine: Engine | None = None
    """The engine that lands and runs, instead of the environment's."""
    master: str = "local[2]"
    """Spark master."""
    divided: bool = True
    """Partition output tables by the partitions of their assets."""
    shuffle_partitions: int = 2
    """State partitions of a new unbounded run."""
    control: str | None = None
    """URL of the control store, instead of SQLite in the workspace: ``postgresql+psycopg://floodmark@host/floodmark``."""
    spark: tuple[tuple[str, str], ...] = ()
    """Further settings of Spark; in the variable as JSON, ``[["spark.driver.memory", "4g"]]``."""


def environment() -> str:
    """The environment whose settings Dagster uses: ``FLOODMARK_ENVIRONMENT``, or dev."""
    return Variables().environment


def settings(environment: str) -> Settings:
    """The settings of ``dev`` or ``prod``."""
    variables = Variables()
    if variables.lake is None and environment not in _LAKES:
        message = f"FLOODMARK_ENVIRONMENT is one of {', '.join(_LAKES)}, not {environment!r}"
        raise ValueError(message)
    return Settings(
        environment=environment,
        lake=variables.lake or _LAKES[environment],
        logs=variables.logs,
        folder=variables.folder,
        divided=variables.divided,
        engine=variables.engine or _ENGINES.get(environment, "spark"),
        master=variables.master,
        shuffle_partitions=variables.shuffle_partitions,
        control=variables.control,
        spark=variables.spark,
    )
