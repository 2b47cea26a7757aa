"""A program of the textbook on Spark, as a stream that is stopped and bounded; the others are in ``make soak`` (``tests/embedded/test_book_examples.py``)."""

from __future__ import annotations

from pathlib import Path

import pytest
from book_accounts import check_accounts

from floodmark.control.processes.engine import Computing


@pytest.mark.feature("Y11")
@pytest.mark.engines("spark")
def test_accounts_that_are_being_emptied_are_told(engine: Computing, tmp_path: Path) -> None:
    check_accounts(engine, tmp_path)
