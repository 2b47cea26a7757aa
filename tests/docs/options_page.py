"""Writes docs/options.md: what the verbs that act on streams may be asked for. ``python tests/docs/options_page.py > docs/options.md``."""

from __future__ import annotations

import sys
from dataclasses import MISSING
from typing import Any

from floodmark.lifecycle.requests import (
    ComparisonRequest,
    ExperimentRequest,
    Option,
    PromotionRequest,
    ReplayRequest,
    RollbackRequest,
    SavepointRequest,
    UpgradeRequest,
    options,
)

PLACES: dict[type, tuple[tuple[str, ...], str]] = {
    SavepointRequest: (("savepoint create",), "savepoint"),
    UpgradeRequest: (("apply",), "upgrade"),
    RollbackRequest: (("rollback",), "rollback"),
    ExperimentRequest: (("experiment start",), "experiment_start"),
    ComparisonRequest: (("experiment report", "diff"), "the asset experiments/OPERATOR/report"),
    PromotionRequest: (("experiment promote",), "experiment_promote"),
    ReplayRequest: (("plan",), ""),
}
"""Request -> the verbs that take it, and Dagster's job."""

_HEAD = """# Options of the verbs that act on streams

A verb and its job in Dagster are asked for the same: both are made of one list of options. Names in a config have the unit of their number.
Written by `python tests/docs/options_page.py > docs/options.md`.
"""


def page() -> str:
    """All of it."""
    return "\n".join([_HEAD, *("\n".join(_part(one, *places)) for one, places in PLACES.items())])


def _part(request: type, verbs: tuple[str, ...], job: str) -> list[str]:
    where = " and ".join(f"`floodmark {verb}`" for verb in verbs)
    name = f"`{job}`" if " " not in job else job.replace("experiments/OPERATOR/report", "`experiments/OPERATOR/report`")
    rows = [f"| {' | '.join(_cells(one, config=bool(job)))} |" for one in options(request)]
    columns = ["option", *(["config"] if job else []), "default", ""]
    return [
        f"## {where}{f'; in Dagster {name}' if job else ''}\n",
        f"{(request.__doc__ or '').strip()}\n",
        f"| {' | '.join(columns)} |",
        f"|{'---|' * len(columns)}",
        *rows,
        "",
    ]


def _cells(one: Option, *, config: bool) -> list[str]:
    value = one.form or one.unit.upper() or ("" if one.kind is bool else one.name.upper())
    given = f"`{one.option_string}{f' {value}' if value else ''}`".replace("|", "\\|")
    return [given, *([f"`{one.configured}`"] if config else []), _default(one.default), one.says.replace("|", "\\|")]


def _default(value: Any) -> str:
    if value is MISSING:
        return "has to be given"
    if isinstance(value, dict):
        return ", ".join(f"`{name}={text}`" for name, text in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value or "") if not isinstance(value, bool) else ""


if __name__ == "__main__":
    sys.stdout.write(page())
