"""Ports of tests: none is chosen twice on a machine, and one refuses."""

from __future__ import annotations

import os
import socket
import sys

import forked
import pytest
from ports import free_port, refusing_port
from processes import paths

OTHERS = """
import fcntl, sys
import ports
for port in map(int, sys.argv[1:]):
    try:
        fcntl.lockf(ports._claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        print(port)
"""
"""Prints the ports that another process has chosen."""


def test_a_port_is_chosen_by_one_process_until_it_ends() -> None:
    chosen = [str(free_port()) for _ in range(50)]
    assert len(set(chosen)) == 50
    for port in chosen[:3]:
        with socket.create_server(("127.0.0.1", int(port))):
            pass  # a server goes, and comes again
    done = forked.run([sys.executable, "-c", OTHERS, *chosen], env=os.environ | {"PYTHONPATH": paths()})
    assert done.stdout.split() == chosen, done.stderr


def test_a_port_at_which_nobody_listens_refuses() -> None:
    with refusing_port() as port, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
