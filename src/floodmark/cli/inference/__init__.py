"""Infers a first contract from data: names, types, nulls, formats of times, and the rows that would be quarantined."""

from floodmark.cli.inference.fields import LookedField, Model
from floodmark.cli.inference.look import Looked, look
from floodmark.cli.inference.trial import Trial, trial

__all__ = ["Looked", "LookedField", "Model", "Trial", "look", "trial"]
