"""A machine without a fitting Java is told so in one sentence, with the command that mends it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from floodmark.core.errors import SetupError
from floodmark.engines.spark.setup import java


def fake_java(folder: Path, version: str) -> Path:
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    binary.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    java.find_java.cache_clear()
    yield
    java.find_java.cache_clear()


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_USUAL_HOMES", ())
    with pytest.raises(SetupError) as caught:
        java.find_java()
    assert str(caught.value).startswith("SETUP-001 Java: expected version 17 or newer, got ")
    assert f"Run `{java.install_command()}`." in str(caught.value)
    assert str(caught.value).endswith("--engine embedded, or FLOODMARK_ENGINE=embedded.")


def test_an_old_java_is_named_with_its_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("PATH", str(old / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setattr(java, "_USUAL_HOMES", ())
    with pytest.raises(SetupError, match="SETUP-001 Java: expected version 17 or newer, got .*11"):
        java.find_java()
