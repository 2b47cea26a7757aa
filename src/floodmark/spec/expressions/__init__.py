"""Expressions: Spark SQL text, parsed once into a tree with Spark's types, and checked before anything runs."""

from floodmark.spec.expressions.expression import Expression, check, expression, itself, known_type, quoted
from floodmark.spec.expressions.implicit import implicit_casts
from floodmark.spec.expressions.typed import Typed

__all__ = ["Expression", "Typed", "check", "expression", "implicit_casts", "itself", "known_type", "quoted"]
