"""Definitions of Dagster's own, beside the workspace: ``dg scaffold defs dagster.asset report.py`` puts an asset here."""
