"""What a process that forks has to heed: it has one thread, as a child would wait for ever for a lock that another one holds."""

from __future__ import annotations

from pathlib import Path

ALONE = {
    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    **dict.fromkeys(("JE_ARROW_MALLOC_CONF", "_RJEM_MALLOC_CONF"), "background_thread:false"),
}
"""Variables with which numpy, pyarrow and deltalake start no threads when they are imported."""


def check() -> None:
    """Make sure that this process has no other thread."""
    threads = len(list(Path("/proc/self/task").iterdir()))
    assert threads == 1, f"a process with {threads} threads must not fork"
