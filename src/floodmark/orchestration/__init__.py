"""Dagster: a workspace as assets with partitions, backfills and checks. The only package that imports Dagster."""

from floodmark.orchestration.component import FloodmarkComponent
from floodmark.orchestration.definitions import build_definitions

__all__ = ["FloodmarkComponent", "build_definitions"]
