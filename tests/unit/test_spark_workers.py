"""The process that Spark starts with a stateful stream is forked; a Python for anything else is the one of the tests."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys

import psutil
import pytest
import spark_workers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="libraries of other systems do not take a fork")


def test_the_process_of_a_stream_is_a_fork_of_the_server_and_connects_to_java() -> None:
    with socket.create_server(("127.0.0.1", 0)) as java:
        java.settimeout(60)
        port = str(java.getsockname()[1])
        environment = os.environ | {"PYTHON_WORKER_FACTORY_PORT": port, "PYTHON_WORKER_FACTORY_SECRET": "secret"}
        command = [spark_workers.launcher(), "-m", spark_workers.MODULE]
        nothing = subprocess.DEVNULL
        with subprocess.Popen(
            command, env=environment, stdin=nothing, stdout=nothing, stderr=subprocess.PIPE
        ) as started:
            connection, _ = java.accept()
            with connection, connection.makefile("rwb") as stream:
                (length,) = struct.unpack("!i", stream.read(4))
                assert stream.read(length) == b"secret"
                stream.write(struct.pack("!i", 2) + b"ok")
                stream.flush()
                (pid,) = struct.unpack("!i", stream.read(4))
                assert pid != started.pid
                assert started.poll() is None, "it lives as long as what it stands for"
                assert "spark_workers.py" in " ".join(psutil.Process(pid).cmdline())
            assert started.stderr is not None
            assert "Error" in started.stderr.read().decode(), "what the process says of its end"
        assert started.returncode == 0


def test_anything_else_is_the_python_of_the_tests() -> None:
    shown = "import sys; print(sys.executable, sys.argv, sys.flags.isolated)"
    done = subprocess.run([spark_workers.launcher(), "-c", shown, "a"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{sys.executable} ['-c', 'a'] 0\n"
