"""What Dagster loads: the workspace as assets."""

from __future__ import annotations

from pathlib import Path

from definitions import workspace
from floodmark.orchestration import build_definitions
from resources.settings import environment

defs = build_definitions(workspace(environment()), root=Path(__file__).parent.parent, others="definitions/others")
