"""A model that is fitted in a process of its own, which a test may kill: fit_process.py LAKE."""

from __future__ import annotations

import sys

from fitted import fitted

if __name__ == "__main__":
    fitted(sys.argv[1])
