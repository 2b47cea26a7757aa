"""Dagster: a workspace as assets with partitions, backfills and checks. The only package that imports Dagster."""

from floodmark.orchestration.component import FloodmarkComponent
from floodmark.orchestration.definitions import build_definitions
from floodmark.orchestration.session import StepWorkspace

__all__ = ["FloodmarkComponent", "StepWorkspace", "build_definitions"]
