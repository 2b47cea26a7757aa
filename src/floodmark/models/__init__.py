"""Fitted models: an estimator is fitted to an interval of a table, and its versions are rows of a table of the lake, which operators score by."""

from floodmark.models.fitting import fit
from floodmark.models.versions import Version, source, versions

__all__ = ["Version", "fit", "source", "versions"]
