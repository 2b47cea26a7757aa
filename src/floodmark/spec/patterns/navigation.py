"""Expressions of ``MATCH_RECOGNIZE``: DEFINE and MEASURES, with navigation by PREV, NEXT, FIRST and LAST, CLASSIFIER and MATCH_NUMBER.

Source: ISO/IEC 19075-5. A column alone is that of the last row of the match so far; ``A.price`` that of the last row with the label ``A``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from floodmark.core.errors import DefinitionError
from floodmark.spec.expressions.interpreted import uninterpreted
from floodmark.spec.expressions.operators import parse
from floodmark.spec.expressions.tokens import Unreadable, tokens
from floodmark.spec.expressions.tree import Call, Column, Field, Literal, Node, walk
from floodmark.spec.patterns.terms import (
    AGGREGATES,
    NAVIGATION,
    Reference,
    Term,
    TermReader,
    known_stage,
    over_distinct,
    refers,
    result_of,
)
from floodmark.spec.values.schema import Schema

PHYSICAL = {"prev": -1, "next": 1}
CLASSIFIER, MATCH_NUMBER = "_classifier", "_match_number"
"""Columns that a matched row has beside its own."""
_SEMANTICS = ("running", "final")


def row_term(text: object, variables: Mapping[str, tuple[str, ...]], schema: Schema, where: str) -> Term:
    """Read an expression of DEFINE or MEASURES.

    Args:
        text: SQL.
        variables: name -> the labels it stands for, itself or those of its SUBSET.
        schema: of the rows.
        where: for errors.

    Raises:
        DefinitionError: as ``spec.patterns.terms.term``.
    """
    if not isinstance(text, str):
        fix = 'Write it as text: "LAST(A.price)".'
        raise DefinitionError(where, "SQL text", repr(text), fix, code="DEFINITION-020")
    try:
        node = parse(_plain_calls(over_distinct(text)))
    except Unreadable as error:
        fix = error.fix
        raise DefinitionError(
            where, "a SQL expression", f"{text!r} ({error.got})", fix, code="DEFINITION-021"
        ) from None
    return _RowReader(text, variables, schema, where).term(node)


def _plain_calls(text: str) -> str:
    """``FINAL LAST(x)`` as ``final_last(x)``, ``count(*)`` as ``count()``, ``count(A.*)`` as ``count(A)``: forms that the grammar of expressions lacks."""
    read = tokens(text)
    pieces, position, index = [], 0, 0
    while index < len(read):
        token = read[index]
        ahead = [read[index + n] if index + n < len(read) else read[-1] for n in range(1, 5)]
        if (
            token.text.lower() in _SEMANTICS
            and token.kind == "word"
            and ahead[0].kind == "word"
            and ahead[1].text == "("
        ):
            pieces.append(text[position : token.start] + token.text.lower() + "_")
            position = ahead[0].start
        elif token.text == "(" and ahead[0].text == "*" and ahead[1].text == ")":
            pieces.append(text[position : ahead[0].start])
            position = ahead[0].end
        elif (
            token.kind in {"word", "quoted"} and ahead[0].text == "." and ahead[1].text == "*" and ahead[2].text == ")"
        ):
            pieces.append(text[position : token.end])
            position = ahead[1].end
        index += 1
    return "".join(pieces) + text[position:]


class _RowReader(TermReader):
    """Takes the references out of one expression."""

    def __init__(self, text: str, variables: Mapping[str, tuple[str, ...]], schema: Schema, where: str) -> None:
        super().__init__(text, tuple(variables), schema, where)
        self.variables = variables
        self.columns |= {CLASSIFIER: "string", MATCH_NUMBER: "bigint"}

    def rewritten(self, node: Node) -> Node:
        """The node with a column in place of each reference."""
        if isinstance(node, Column) and node.name.lower() in {name.lower() for name in self.schema.names}:
            return self._refer_to("last", (), node, 0)
        if isinstance(node, Call):
            name, _, own = node.name.partition("_")
            if name in _SEMANTICS and own:
                return self._navigated(Call(own, node.arguments), final=name == "final")
            if node.name in {*AGGREGATES, *NAVIGATION, *PHYSICAL, "classifier"}:
                return self._navigated(node, final=False)
            if node.name == "match_number" and not node.arguments:
                return Column(MATCH_NUMBER)
        return super().rewritten(node)

    def _navigated(self, node: Call, *, final: bool) -> Node:
        shift = 0
        if node.name in PHYSICAL:
            inner, count = self._with_count(node, 1)
            shift = PHYSICAL[node.name] * count
            if not (
                isinstance(inner, Call) and inner.name.removeprefix("running_").removeprefix("final_") in NAVIGATION
            ):
                return self._at("last", inner, 0, shift, final=final)
            final = final or inner.name.startswith("final_")
            node = Call(inner.name.removeprefix("running_").removeprefix("final_"), inner.arguments)
        if node.name in NAVIGATION:
            inner, offset = self._with_count(node, 0)
            return self._at(node.name, inner, offset, shift, final=final)
        if node.name == "classifier":
            return self._at("last", node, 0, 0, final=final)
        return self._aggregated(node, final=final)

    def _with_count(self, node: Call, default: int) -> tuple[Node, int]:
        match node.arguments:
            case (value,):
                return value, default
            case (value, Literal(value=int() as count)) if count >= 0 and not isinstance(count, bool):
                return value, count
            case _:
                raise self._unfit(
                    f"{node.name} of a value and a number of rows, 0 or more", f"{len(node.arguments)} arguments"
                )

    def _aggregated(self, node: Call, *, final: bool) -> Node:
        if node.name == "count" and not node.arguments:
            return self._refer_to("count", (), None, 0, final=final)
        if len(node.arguments) != 1:
            raise self._unfit(f"{node.name} of one value", f"{len(node.arguments)} values")
        value = node.arguments[0]
        if node.name == "count" and isinstance(value, Column) and (stage := self._named(value.name)) is not None:
            return self._refer_to("count", (stage,), None, 0, final=final)
        return self._at(node.name, value, 0, 0, final=final)

    def _at(self, function: str, value: Node, offset: int, shift: int, *, final: bool) -> Node:
        named = dict.fromkeys(self._variables_in(value))
        if len(named) > 1:
            raise self._unfit(f"rows of one variable in {function}(...)", " and ".join(named))
        return self._refer_to(function, tuple(named), self._plain(value), offset, shift, final=final)

    def _variables_in(self, value: Node) -> list[str]:
        names = []
        for part in walk(value):
            if isinstance(part, Field) and (stage := self._stage(part)):
                names.append(stage)
            if isinstance(part, Call) and part.name == "classifier" and part.arguments:
                names.append(self._classified(part))
        return names

    def _classified(self, node: Call) -> str:
        argument = node.arguments[0]
        stage = known_stage(argument.name, self.stages) if isinstance(argument, Column) else None
        if stage is None:
            raise self._unfit("classifier(), or of a variable of the pattern", "another argument")
        return stage

    def _plain(self, node: Node) -> Node:
        if isinstance(node, Call):
            if node.name == "classifier":
                return Column(CLASSIFIER)
            if node.name == "match_number":
                return Column(MATCH_NUMBER)
            if node.name in PHYSICAL:
                raise self._unfit("an expression over the columns of one row", f"{node.name}(...) in another reference")
        return super()._plain(node)

    def _refer_to(
        self,
        function: str,
        named: tuple[str, ...],
        value: Node | None,
        offset: int,
        shift: int = 0,
        *,
        final: bool = False,
    ) -> Node:
        tree = None if value is None else self.typed(value, self.columns)
        if tree is not None and (what := uninterpreted(tree)):
            raise self.beyond(what)
        kind = "bigint" if tree is None else result_of(function, tree.type)
        if not kind:
            raise self._unfit(
                f"a value of known type, a number for {function}", f"a value of type {tree and tree.type}"
            )
        labels = tuple(label for name in named for label in self.variables[name])
        self.references.append(Reference(function, labels, tree, offset, kind, shift, final))
        return Column(f"_r{len(self.references) - 1}")


def lookahead(terms: Sequence[Term]) -> tuple[int, int]:
    """Rows before and behind a match that some expressions may read."""
    shifts = [part.shift for read in terms for part in read.references]
    return -min([0, *shifts]), max([0, *shifts])


def over_own_row(text: str, names: Sequence[str], schema: Schema) -> bool:
    """Whether a condition of DEFINE names columns of the current row alone: no variable, no navigation, no classifier."""
    if refers(text, names, schema):
        return False
    special = {*PHYSICAL, "classifier", "match_number"}
    return not any(isinstance(part, Call) and part.name in special for part in walk(parse(text)))


def is_local(read: Term, label: str) -> bool:
    """Whether a condition depends on the rows around the current one alone, and not on which labels other rows have."""
    return all(
        part.function == "last"
        and part.offset == 0
        and (not part.stages or label in part.stages)
        and not _labelled(part)
        for part in read.references
    )


def _labelled(part: Reference) -> bool:
    waiting = [] if part.value is None else [part.value]
    while waiting:
        tree = waiting.pop()
        if tree.column == CLASSIFIER:
            return True
        waiting += tree.children
    return False
