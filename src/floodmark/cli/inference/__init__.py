"""A first contract by looking at data: names, types, nulls, how times are written, and what would be set aside."""

from floodmark.cli.inference.fields import LookedField, Model
from floodmark.cli.inference.look import Looked, look
from floodmark.cli.inference.trial import Trial, trial

__all__ = ["Looked", "LookedField", "Model", "Trial", "look", "trial"]
