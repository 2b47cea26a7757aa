"""Infers a first contract from data: names, types, nulls, formats of times, and the rows that would be quarantined."""

from floodmark.cli.new.inference.fields import LookedField, Model
from floodmark.cli.new.inference.look import Looked, look
from floodmark.cli.new.inference.trial import Trial, trial

__all__ = ["Looked", "LookedField", "Model", "Trial", "look", "trial"]
