"""Expressions over a row and the rows matched so far: SQL text in which ``last(a.amount)`` and ``sum(b.amount)`` name rows of stages.

A term is the tree of the expression in which each reference to rows of a stage is a column of its own, and the list of these references.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from floodmark.core.errors import DefinitionError, closest
from floodmark.core.types import known
from floodmark.spec.expressions.inference import UnknownColumn, infer
from floodmark.spec.expressions.interpreted import DEEPEST, TIMES, uninterpreted
from floodmark.spec.expressions.operators import parse
from floodmark.spec.expressions.tokens import Unreadable, tokens
from floodmark.spec.expressions.tree import Call, Case, Cast, Column, Field, Literal, Node, levels, walk
from floodmark.spec.expressions.typed import Mismatch, Typed
from floodmark.spec.patterns.lengths import in_micros
from floodmark.spec.values.schema import Schema
from floodmark.spec.windowing.aggregates import total_type

DISTINCT = "_distinct"
"""Ends the names of functions over the different values of all rows: ``count(DISTINCT x)`` is read as ``count_distinct(x)``."""
AGGREGATES = frozenset(
    ["count", "sum", "min", "max", "avg", "mean", "collect", "array_agg"]
    + [f"{name}{DISTINCT}" for name in ("count", "sum", "min", "max", "avg", "mean")]
)
"""Functions over all rows of a stage."""
NAVIGATION = frozenset({"first", "last"})
"""Functions that take one row of a stage."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Rows of a stage in an expression.

    Args:
        function: ``last``, ``first``, ``count``, ``sum`` and their like.
        stages: names of the stages whose rows are meant; empty for all rows of the match.
        value: the expression over one such row; None for the row itself (``count(a)``).
        offset: so many rows from the first or the last one.
        type: Spark SQL type of the result.
        shift: so many rows of the key behind that row, or before it if less than zero.
        final: whether all rows of the match count, and not only those up to the current one.
    """

    function: str
    stages: tuple[str, ...]
    value: Typed | None
    offset: int
    type: str
    shift: int = 0
    final: bool = False


@dataclass(frozen=True, slots=True)
class Term:
    """An expression over a row and over rows of stages.

    Args:
        text: as the user wrote it.
        tree: typed; the column ``_r0`` is the first reference.
        references: to rows of stages.
    """

    text: str
    tree: Typed
    references: tuple[Reference, ...]

    @property
    def type(self) -> str:
        """Spark SQL type of the value; empty if it is not known."""
        return "" if "void" in self.tree.type else self.tree.type


def refers(text: str, stages: Sequence[str], schema: Schema) -> bool:
    """Whether an expression names rows of a stage, or something that is neither a stage nor a column."""
    try:
        node = parse(over_distinct(text))
    except Unreadable:
        return True  # such as count(*): said exactly where the text is read
    return any(
        (isinstance(part, Field) and isinstance(part.value, Column) and _is_stage(part.value.name, stages, schema))
        or (isinstance(part, Call) and part.name in AGGREGATES | NAVIGATION)
        for part in walk(node)
    )


def _is_stage(name: str, stages: Sequence[str], schema: Schema) -> bool:
    return known_stage(name, stages) is not None or name not in schema


def over_distinct(text: str) -> str:
    """``count(DISTINCT x)`` as ``count_distinct(x)``: the grammar of expressions reads over DISTINCT."""
    read = tokens(text)
    pieces, position = [], 0
    for name, parenthesis, word, value in zip(read, read[1:], read[2:], read[3:], strict=False):
        called = name.kind == "word" and parenthesis.text == "("
        if called and word.word == "DISTINCT" and (value.kind != "operator" or value.text in {"-", "+", "~", "("}):
            pieces.append(f"{text[position : name.end]}{DISTINCT}(")
            position = word.end
    return "".join(pieces) + text[position:]


def term(text: object, stages: Sequence[str], schema: Schema, where: str) -> Term:
    """Read an expression over a row and over rows of stages.

    Args:
        text: Spark SQL, in which ``a.amount`` is the value of the last row of stage ``a``.
        stages: the names that may be used.
        schema: of the rows.
        where: for errors.

    Raises:
        DefinitionError: DEFINITION-020 no text, 021 no SQL, 022 an unknown column, 145 types that Spark refuses, 422 an unknown stage or a
            reference to rows of a stage that has another form, 423 a function that is not computed by row.
    """
    if not isinstance(text, str):
        fix = 'Write it as text: "last(a.amount)".'
        raise DefinitionError(where, "Spark SQL text", repr(text), fix, code="DEFINITION-020")
    try:
        node = parse(over_distinct(text))
    except Unreadable as error:
        raise DefinitionError(
            where, "a Spark SQL expression", f"{text!r} ({error.got})", error.fix, code="DEFINITION-021"
        ) from None
    return TermReader(text, stages, schema, where).term(node)


class TermReader:
    """Takes the references out of one expression."""

    def __init__(self, text: str, stages: Sequence[str], schema: Schema, where: str) -> None:
        self.text, self.stages, self.schema, self.where = text, stages, schema, where
        self.columns = schema.types
        self.references: list[Reference] = []

    def term(self, node: Node) -> Term:
        """The expression with its references, typed.

        Raises:
            DefinitionError: DEFINITION-021, too many levels; 423, a function that is not computed by row; those of ``rewritten`` and ``typed``.
        """
        if (deep := levels(node)) > DEEPEST:
            fix = "Take it apart with several with_columns(...); IN (...) for many alternatives."
            got = f"{deep} levels in {self.text[:60]!r}..."
            expected = f"an expression that is not so deep, at most {DEEPEST} levels"
            raise DefinitionError(self.where, expected, got, fix, code="DEFINITION-021")
        rewritten = self.rewritten(in_micros(node))
        tree = self.typed(rewritten, self.columns | {f"_r{n}": part.type for n, part in enumerate(self.references)})
        if what := uninterpreted(tree):
            raise self.beyond(what)
        return Term(self.text, tree, tuple(self.references))

    def rewritten(self, node: Node) -> Node:
        """The node with a column in place of each reference."""
        match node:
            case Field() if (stage := self._stage(node)) is not None:
                return self._refer("last", (stage,), Column(node.name), 0)
            case Call(name=name, arguments=arguments) if name in NAVIGATION | AGGREGATES:
                return self._called(name, arguments)
            case Call(name=name, arguments=arguments):
                return Call(name, tuple(self.rewritten(part) for part in arguments))
            case Cast(value=value, type=kind, attempt=attempt):
                return Cast(self.rewritten(value), kind, attempt)
            case Case(branches=branches, otherwise=otherwise):
                pairs = tuple((self.rewritten(condition), self.rewritten(value)) for condition, value in branches)
                return Case(pairs, None if otherwise is None else self.rewritten(otherwise))
            case _:
                return node

    def _called(self, name: str, arguments: tuple[Node, ...]) -> Node:
        if not arguments and name == "count":
            return self._refer(name, (), None, 0)
        offset = 0
        if name in NAVIGATION and len(arguments) == 2:  # noqa: PLR2004 - value and offset
            number = arguments[1]
            if not isinstance(number, Literal) or type(number.value) is not int or number.value < 0:
                raise self._unfit("a number of rows, 0 or more, in " + name, "another offset")
            offset, arguments = number.value, arguments[:1]
        if len(arguments) != 1:
            raise self._unfit(f"{name} of one value", f"{len(arguments)} values")
        value = arguments[0]
        if name == "count" and isinstance(value, Column) and (stage := self._named(value.name)) is not None:
            return self._refer(name, (stage,), None, 0)
        named = dict.fromkeys(stage for part in walk(value) if isinstance(part, Field) and (stage := self._stage(part)))
        if len(named) > 1:
            raise self._unfit(f"rows of one stage in {name}(...)", " and ".join(named))
        return self._refer(name, tuple(named), self._plain(value), offset)

    def _refer(self, function: str, stages: tuple[str, ...], value: Node | None, offset: int) -> Node:
        tree = None if value is None else self.typed(value, self.schema.types)
        if tree is not None and (what := uninterpreted(tree)):
            raise self.beyond(what)
        kind = "bigint" if tree is None else result_of(function, tree.type)
        if not kind:
            raise self._unfit(
                f"a value of known type, a number for {function}", f"a value of type {tree and tree.type}"
            )
        self.references.append(Reference(function, stages, tree, offset, kind))
        return Column(f"_r{len(self.references) - 1}")

    def _plain(self, node: Node) -> Node:
        """The value over one row: ``a.amount`` is ``amount`` of it."""
        match node:
            case Field() if self._stage(node) is not None:
                return Column(node.name)
            case Call(name=name) if name in NAVIGATION | AGGREGATES:
                raise self._unfit("an expression over the columns of one row", f"{name}(...) in another reference")
            case Call(name=name, arguments=arguments):
                return Call(name, tuple(self._plain(part) for part in arguments))
            case Cast(value=value, type=kind, attempt=attempt):
                return Cast(self._plain(value), kind, attempt)
            case Case(branches=branches, otherwise=otherwise):
                pairs = tuple((self._plain(condition), self._plain(value)) for condition, value in branches)
                return Case(pairs, None if otherwise is None else self._plain(otherwise))
            case _:
                return node

    def _stage(self, field: Field) -> str | None:
        stage = _stage_of(field, self.stages)
        if stage is None and isinstance(field.value, Column) and field.value.name not in self.schema:
            fix = closest(field.value.name, self.stages) + f"Stages: {', '.join(self.stages)}."
            got = f"'{field.value.name}' in {self.text!r}"
            raise DefinitionError(self.where, "stages of the pattern", got, fix, code="DEFINITION-422")
        return stage

    def _named(self, name: str) -> str | None:
        return None if name in self.schema else known_stage(name, self.stages)

    def typed(self, node: Node, columns: Mapping[str, str]) -> Typed:
        """The node with its types."""
        try:
            return infer(node, columns)
        except UnknownColumn as error:
            fix = f"{closest(error.name, self.schema.names)}Columns: {self.schema.describe()}."
            raise DefinitionError(
                self.where, "columns of the stream", f"'{error.name}'", fix, code="DEFINITION-022"
            ) from None
        except Mismatch as error:
            raise DefinitionError(
                self.where, error.expected, f"{error.got} in {self.text!r}", error.fix, code="DEFINITION-145"
            ) from None

    def beyond(self, what: str) -> DefinitionError:
        """DEFINITION-423: a part of an expression that only an engine computes."""
        fix = "Make it a column before the pattern, with_columns(name=...), and name that column; or compute it of measures, select(...).with_columns(...)."
        name, _, of = what.partition(" of ")
        kinds = set(of.split(", ")) - {"void"}
        if what.startswith(tuple(f"the {kind} " for kind in TIMES)):
            fix = "Write it as '2026-01-01', a time as '2026-01-01 12:00:00' or '2026-01-01 12:00:00+01:00'. " + fix
        elif name in {"+", "-"} and any(kind.startswith(("timestamp", "date", "interval")) for kind in kinds):
            fix = "The time between two rows is unix_millis(b.at) - unix_millis(a.at), in ms. " + fix
        elif "string" in kinds and len(kinds) > 1:
            fix = "Write values of one type, such as n = 1 in place of n = '1'. " + fix
        return DefinitionError(
            self.where, "what floodmark computes row by row", f"{what} in {self.text!r}", fix, code="DEFINITION-423"
        )

    def _unfit(self, expected: str, got: str) -> DefinitionError:
        fix = "For example last(a.amount), first(b.at, 1), sum(b.amount * b.items), count(b)."
        return DefinitionError(self.where, expected, f"{got} in {self.text!r}", fix, code="DEFINITION-422")


def _stage_of(field: Field, stages: Sequence[str]) -> str | None:
    return known_stage(field.value.name, stages) if isinstance(field.value, Column) else None


def known_stage(name: str, stages: Sequence[str]) -> str | None:
    """The stage of that name, in any case, as names of SQL are."""
    if name in stages:
        return name
    return next((stage for stage in stages if stage.lower() == name.lower()), None)


def result_of(function: str, kind: str) -> str:
    """Type of a reference's value: function, type of the value of one row -> type; empty if the function does not take it."""
    function = function.removesuffix(DISTINCT)
    typed = known(kind) if kind and "void" not in kind else None
    if function == "count":
        return "bigint"
    if typed is None or not typed.is_column:
        return ""
    match function:
        case "collect" | "array_agg":
            return f"array<{kind}>"
        case "sum":
            return total_type(kind) if typed.is_numeric else ""
        case "avg" | "mean":
            return "double" if typed.is_numeric else ""
        case "min" | "max":
            return kind if typed.is_orderable else ""
        case _:
            return kind


def columns_of(tree: Typed) -> Iterator[str]:
    """The columns a tree reads."""
    if tree.column:
        yield tree.column
    for child in tree.children:
        yield from columns_of(child)
