"""The allocator that deltalake brings along gives back what is freed, so that a stream's process does not grow with its checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

VARIABLE = "_RJEM_MALLOC_CONF"
CONF = "narenas:1,tcache:false,dirty_decay_ms:0,muzzy_decay_ms:0"


def run(code: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE} | settings
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="deltalake brings its own allocator on Linux only")
def test_deltalake_reads_the_setting_when_it_is_imported() -> None:
    assert "nosuchsetting" in run("import deltalake", **{VARIABLE: "nosuchsetting:1"}).stderr


def test_the_setting_is_there_before_deltalake_is_imported() -> None:
    code = f"import sys, os, floodmark; print('deltalake' in sys.modules, os.environ['{VARIABLE}'])"
    assert run(code).stdout.split() == ["False", CONF]


def test_a_setting_of_the_users_own_is_kept() -> None:
    code = f"import os, floodmark; print(os.environ['{VARIABLE}'])"
    assert run(code, **{VARIABLE: "narenas:3"}).stdout.split() == ["narenas:3"]
