"""Secrets of Spark: by reference in settings, and in no argument of a process."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from floodmark import Env, Settings
from floodmark.core.errors import SetupError
from floodmark.engines.spark.session import builder
from floodmark.spec.values.secret import SecretFile

NAME = "spark.authenticate.secret"


@pytest.mark.parametrize("name", [NAME, "spark.ssl.rpc.keyStorePassword", "spark.hadoop.fs.s3a.secret.key"])
def test_a_secret_that_is_written_out_is_refused_and_not_shown(name: str) -> None:
    with pytest.raises(SetupError, match="SETUP-105") as refused:
        Settings(spark=((name, "T0PSECRET"),))
    assert "T0PSECRET" not in str(refused.value)
    assert name in str(refused.value)


def test_what_is_no_secret_is_taken_as_it_is() -> None:
    pairs = (
        ("spark.authenticate", "true"),
        (f"{NAME}.file", "/run/secrets/spark"),
        ("spark.kerberos.principal", "me@X"),
    )
    assert Settings(spark=pairs).spark_settings() == dict(pairs)
    assert Settings(spark=pairs).spark_secrets() == {}
    with pytest.raises(SetupError, match="SETUP-073"):
        Settings(spark=((NAME, 7),))  # type: ignore[arg-type]


def test_references_are_read_when_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    settings = Settings(spark=((NAME, Env("SPARK_SECRET")), ("spark.ssl.keyPassword", SecretFile(str(file)))))
    with pytest.raises(SetupError, match=rf"SETUP-106 variable SPARK_SECRET: expected the secret {NAME} of Spark"):
        settings.spark_secrets()
    monkeypatch.setenv("SPARK_SECRET", "SECRET-1")
    with pytest.raises(SetupError, match=rf"SETUP-106 file {file}"):
        settings.spark_secrets()
    file.write_text("SECRET-2\n")
    assert settings.spark_secrets() == {NAME: "SECRET-1", "spark.ssl.keyPassword": "SECRET-2"}
    assert settings.spark_settings() == {}
    assert "SECRET-1" not in repr(settings)


def test_secrets_reach_java_in_a_file_of_this_user_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--name mine pyspark-shell")
    with builder._in_a_file({NAME: "a =\\b\né😀"}):
        arguments = os.environ["PYSPARK_SUBMIT_ARGS"]
        assert arguments.endswith("--name mine pyspark-shell")
        file = Path(arguments.split()[2])
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.read_text("ascii") == f"{NAME}=a\\u0020\\u003d\\u005cb\\u000a\\u00e9\\ud83d\\ude00\n"
        assert "é" not in arguments
    assert not file.exists()
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--name mine pyspark-shell"
    with builder._in_a_file({}):
        assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--name mine pyspark-shell"
