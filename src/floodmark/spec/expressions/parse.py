"""Spark SQL text -> tree, by Spark's own grammar (``SqlBaseParser.g4``): operators from loose to tight, then primaries."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from floodmark.core.errors import closest
from floodmark.core.types import SCALARS, known
from floodmark.spec.expressions.functions import WHY
from floodmark.spec.expressions.literals import check_day, interval_type, number
from floodmark.spec.expressions.tokens import Token, Unreadable, tokens
from floodmark.spec.expressions.tree import Call, Case, Cast, Column, Field, Lambda, Literal, Node

_BINARY: tuple[tuple[str, ...], ...] = (
    ("=", "==", "<=>", "<>", "!=", "<", "<=", "!>", ">", ">=", "!<"),
    ("|",),
    ("^",),
    ("&",),
    ("<<", ">>", ">>>"),
    ("+", "-", "||"),
    ("*", "/", "%", "DIV"),
)
"""Operators of values, from loose to tight; all of them group from the left."""
_SAME = {"==": "=", "!=": "<>", "!>": "<=", "!<": ">="}
_TYPED = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "TIME", "X"})
_UNITS = frozenset(
    [
        "YEAR",
        "YEARS",
        "MONTH",
        "MONTHS",
        "WEEK",
        "WEEKS",
        "DAY",
        "DAYS",
        "HOUR",
        "HOURS",
        "MINUTE",
        "MINUTES",
        "SECOND",
        "SECONDS",
        "MILLISECOND",
        "MILLISECONDS",
        "MICROSECOND",
        "MICROSECONDS",
    ]
)
_SHIFTED = frozenset({"TIMESTAMPADD", "DATEADD", "DATE_ADD", "TIMESTAMPDIFF", "DATEDIFF", "DATE_DIFF", "TIMEDIFF"})
_PACKAGES = frozenset({("builtin",), ("system", "builtin")})
"""What may stand before the name of a function of Spark's own."""
_SUBQUERY = "A subquery belongs into an operator of its own; join its result."
_DEEPEST = 200
SCALAR_NAMES = tuple(form.name for form in SCALARS if form.column)
"""Types a column may have that are not made of others."""


@lru_cache(maxsize=4096)
def parse(text: str) -> Node:
    """The tree of an expression.

    Raises:
        Unreadable: no expression of Spark SQL, or one that needs more than a row.
    """
    reader = _Reader(tokens(text))
    node = reader.expression()
    reader.finished()
    return node


class _Reader:
    """Reads tokens from left to right."""

    def __init__(self, read: list[Token]) -> None:
        self.tokens, self.position, self.depth = read, 0, 0

    # ---- tokens

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def ahead(self, count: int = 1) -> Token:
        return self.tokens[min(self.position + count, len(self.tokens) - 1)]

    def take(self) -> Token:
        token = self.token
        self.position += token.kind != "end"
        return token

    def accept(self, *texts: str) -> str:
        """The operator or word that comes next, if it is one of these; else empty."""
        token = self.token
        text = token.word or (token.text if token.kind == "operator" else "")
        if text and text in texts:
            self.take()
            return text
        return ""

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.unexpected(f"{text} expected, ")

    def unexpected(self, lead: str = "") -> Unreadable:
        shown = "its end" if self.token.kind == "end" else f"{self.token.text!r} at character {self.token.start + 1}"
        return Unreadable(f"{lead}{shown}")

    def finished(self) -> None:
        if self.token.kind == "end":
            return
        if self.token.word in {"AS", "OVER"} or self.token.kind in {"word", "quoted"}:
            fix = 'Write one expression over the columns; names come from the keyword: with_columns(total="a + b").'
            shown = f"{self.token.text!r} at character {self.token.start + 1}"
            raise Unreadable(shown, fix)
        raise self.unexpected()

    # ---- conditions

    def expression(self) -> Node:
        self.depth += 1
        if self.depth > _DEEPEST:
            message = f"more than {_DEEPEST} levels"
            raise Unreadable(message, "Take it apart with several with_columns(...).")
        left = self.conjunction()
        while self.accept("OR"):
            left = Call("or", (left, self.conjunction()))
        self.depth -= 1
        return left

    def conjunction(self) -> Node:
        left = self.negation()
        while self.accept("AND"):
            left = Call("and", (left, self.negation()))
        return left

    def negation(self) -> Node:
        if self.token.word == "NOT" and not self.behind_name(1):
            self.take()
            return Call("not", (self.negation(),))
        if self.accept("!"):
            return Call("not", (self.negation(),))
        return self.predicate()

    def predicate(self) -> Node:
        value = self.binary(0)
        if self.accept("IS"):
            return self.described(value)
        negated = bool(self.accept("NOT"))
        if self.accept("BETWEEN"):
            low = self.binary(0)
            self.expect("AND")
            node: Node = Call("between", (value, low, self.binary(0)))
        elif self.accept("IN"):
            node = self.member(value)
        elif word := self.accept("LIKE", "ILIKE"):
            return self.like(word.lower(), value, negated=negated)
        elif self.accept("RLIKE", "REGEXP"):
            node = Call("rlike", (value, self.binary(0)))
        elif negated:
            raise self.unexpected("BETWEEN, IN, LIKE or RLIKE expected after NOT, ")
        else:
            return value
        return Call("not", (node,)) if negated else node

    def described(self, value: Node) -> Node:
        negated = bool(self.accept("NOT"))
        if self.accept("NULL"):
            return Call("isnotnull" if negated else "isnull", (value,))
        if word := self.accept("TRUE", "FALSE"):
            node = Call("<=>", (value, Literal(word == "TRUE", "boolean")))
        elif self.accept("UNKNOWN"):
            node = Call("isnull", (value,))
        elif self.accept("DISTINCT"):
            self.expect("FROM")
            node, negated = Call("<=>", (value, self.binary(0))), not negated
        else:
            raise self.unexpected("NULL, TRUE, FALSE or DISTINCT FROM expected, ")
        return Call("not", (node,)) if negated else node

    def member(self, value: Node) -> Node:
        self.expect("(")
        self.no_query()
        if self.token.text == ")":
            raise Unreadable("IN (), an empty list", "Name at least one value: code IN ('a', 'b').")
        return Call("in", (value, *self.arguments()))

    def like(self, word: str, value: Node, *, negated: bool) -> Node:
        """Of several patterns each is negated: NOT LIKE ANY holds where one of them does not fit."""

        def fits(*arguments: Node) -> Node:
            node = Call(word, (value, *arguments))
            return Call("not", (node,)) if negated else node

        if self.token.word in {"ANY", "SOME", "ALL"} and self.ahead().text == "(":
            quantifier = "and" if self.take().word == "ALL" else "or"
            self.expect("(")
            patterns = self.arguments()
            if not patterns:
                raise Unreadable("LIKE of an empty list", "Name at least one pattern.")
            node = fits(patterns[0])
            for pattern in patterns[1:]:
                node = Call(quantifier, (node, fits(pattern)))
            return node
        pattern = self.binary(0)
        return fits(pattern, self.binary(0)) if self.accept("ESCAPE") else fits(pattern)

    # ---- values

    def binary(self, level: int) -> Node:
        if level == len(_BINARY):
            return self.unary()
        left = self.binary(level + 1)
        while operator := self.accept(*_BINARY[level]):
            name = _SAME.get(operator, operator).lower()
            left = Call(name, (left, self.binary(level + 1)))
        return left

    def unary(self) -> Node:
        if self.token.text == "-" and self.token.kind == "operator" and self.ahead().kind == "number":
            self.take()
            return self.suffixed(number(self.take().text, negative=True))
        if operator := self.accept("-", "+", "~"):
            return Call({"-": "negative", "+": "positive"}.get(operator, operator), (self.unary(),))
        return self.suffixed(self.primary())

    def suffixed(self, node: Node) -> Node:
        while operator := self.accept("[", ".", "::", ":"):
            if operator == "[":
                node = Call("[]", (node, self.expression()))
                self.expect("]")
            elif operator == "::":
                node = Cast(node, self.type())
            elif operator == ":":
                node = Call(":", (node, Literal(self.path(), "string")))
            elif self.token.kind not in {"word", "quoted"}:
                raise self.unexpected("a name expected, ")
            elif self.ahead().text == "(" and _names(node) in _PACKAGES:
                node = self.plain_call(self.take())
            else:
                node = Field(node, self.take().text)
        if self.token.word == "COLLATE":
            raise Unreadable("COLLATE", "Compare lower(a) with lower(b).")
        return node

    def path(self) -> str:
        """Where in a variant a value lies: ``a.b[0]['c']``."""
        start = self.position
        while not self.position > start or self.token.text in {".", "["}:
            if self.accept("["):
                if self.take().kind not in {"number", "string"}:
                    self.position -= 1
                    raise self.unexpected("a number or a text expected, ")
                self.expect("]")
                continue
            if self.position > start:
                self.expect(".")
            if self.take().kind not in {"word", "quoted"}:
                self.position -= 1
                raise self.unexpected("a name expected, ")
        return "".join(token.text for token in self.tokens[start : self.position])

    def primary(self) -> Node:
        token = self.token
        match token.kind:
            case "number":
                return number(self.take().text)
            case "string":
                text = self.take().text
                while self.token.kind == "string":
                    text += self.take().text
                return Literal(text, "string")
            case "quoted":
                self.take()
                return self.named_lambda(token.text) or self.called(token) or Column(token.text, quoted=True)
            case "word":
                return self.word()
            case "operator" if token.text == "(":
                return self.parenthesised()
            case "operator" if token.text == "*":
                raise Unreadable("*", "Name the columns; count() counts rows.")
            case "operator" if token.text in {":", "?", "@", "$"}:
                fix = "Parameters have no values here; put the value into the text, f-strings are fine."
                raise Unreadable("a parameter", fix)
            case _:
                raise self.unexpected()

    def parenthesised(self) -> Node:
        if parameters := self.lambda_parameters():
            return Lambda(parameters, self.expression())
        self.expect("(")
        self.no_query()
        parts = [self.expression()]
        while self.accept(","):
            parts.append(self.expression())
        self.expect(")")
        return parts[0] if len(parts) == 1 else Call("struct", tuple(parts))

    def lambda_parameters(self) -> tuple[str, ...]:
        names, ahead = [], 1
        while self.ahead(ahead).kind in {"word", "quoted"}:
            names.append(self.ahead(ahead).text)
            ahead += 2
            if self.ahead(ahead - 1).text == ")" and self.ahead(ahead).text == "->":
                self.position += ahead + 1
                return tuple(names)
            if self.ahead(ahead - 1).text != ",":
                return ()
        return ()

    def named_lambda(self, name: str) -> Node | None:
        return Lambda((name,), self.expression()) if self.accept("->") else None

    def word(self) -> Node:
        token = self.take()
        word = token.word
        if word in {"NULL", "TRUE", "FALSE"}:
            return Literal(None, "void") if word == "NULL" else Literal(word == "TRUE", "boolean")
        if word == "CASE" and not self.behind_name():
            return self.case()
        if word == "INTERVAL":
            return self.interval()
        if word in _TYPED and self.token.kind == "string":
            return self.typed(word)
        if word == "SELECT" and self.token.kind != "end" and self.token.text not in _SEPARATORS:
            raise Unreadable("a query", _SUBQUERY, "DEFINITION-023")
        return self.named_lambda(token.text) or self.called(token) or Column(token.text)

    def typed(self, word: str) -> Literal:
        text = self.take().text
        if word == "TIME":
            raise Unreadable("a TIME", WHY["time"][1])
        if word == "X":
            if not re.fullmatch(r"[0-9a-fA-F]*", text):
                raise Unreadable(f"X'{text}'", "Write hexadecimal digits: X'1F'.")
            return Literal(bytes.fromhex(text if len(text) % 2 == 0 else f"0{text}"), "binary")
        check_day(word, text)
        return Literal(text, str(known(word)))

    def case(self) -> Node:
        subject = None if self.token.word == "WHEN" else self.expression()
        branches = []
        while self.accept("WHEN"):
            condition = self.expression()
            self.expect("THEN")
            condition = condition if subject is None else Call("=", (subject, condition))
            branches.append((condition, self.expression()))
        if not branches:
            raise Unreadable(self.unexpected("WHEN expected, ").got, "Write `case` in backticks for the column.")
        otherwise = self.expression() if self.accept("ELSE") else None
        self.expect("END")
        return Case(tuple(branches), otherwise)

    def behind_name(self, ahead: int = 0) -> bool:
        """Whether what comes can only follow a value, so that the word before it, CASE or NOT, names a column."""
        token = self.ahead(ahead)
        return (
            token.kind == "end" or token.word in _FOLLOWING or (token.kind == "operator" and token.text in _FOLLOWING)
        )

    def interval(self) -> Node:
        parts: list[tuple[Node, str]] = []
        while self.quantity(first=not parts):
            value = self.amount()
            if self.token.word not in _UNITS:
                if parts or not isinstance(value, Literal) or value.type != "string":
                    raise Unreadable(
                        "an interval without a unit", "Write INTERVAL 1 HOUR, or `interval` for the column."
                    )
                units = [
                    unit for unit in re.findall("[a-z]+", str(value.value), re.IGNORECASE) if unit.lower() != "interval"
                ]
                return Literal(value.value, interval_type(units))
            unit = self.take().word.removesuffix("S")
            if self.accept("TO"):
                last = self.take().word.removesuffix("S")
                return Call("interval", (value, Literal(f"{unit} TO {last}", interval_type([unit, last]))))
            _check_amount(value, unit)
            parts.append((value, unit))
        if not parts:
            raise Unreadable("an interval without a number", "Write INTERVAL 1 HOUR, or `interval` for the column.")
        whole = interval_type([unit for _, unit in parts])
        return Call("interval", tuple(node for value, unit in parts for node in (value, Literal(unit, whole))))

    def amount(self) -> Node:
        """The number of a unit: written out, with a sign or without."""
        sign = self.accept("-", "+")
        if self.token.kind not in {"number", "string"}:
            written = "Write the number itself, or multiply: n * INTERVAL 1 DAY, make_dt_interval(n)."
            raise Unreadable(self.unexpected("a number expected behind INTERVAL, ").got, written)
        token = self.take()
        if token.kind == "number":
            return number(token.text, negative=sign == "-")
        text = Literal(token.text, "string")
        return Call("negative", (text,)) if sign == "-" else text

    def quantity(self, *, first: bool) -> bool:
        """Whether the number of a unit comes next; behind the first one ``+`` may as well add what is no part of the interval."""
        signed = self.token.kind == "operator" and self.token.text in {"-", "+"}
        number, unit = (self.ahead(), self.ahead(2)) if signed else (self.token, self.ahead())
        if first:
            return signed or number.kind in {"number", "string"} or number.text == "(" or unit.word in _UNITS
        return number.kind in {"number", "string"} and unit.word in _UNITS

    # ---- calls

    def called(self, token: Token) -> Node | None:
        if self.token.text != "(" or self.token.kind != "operator":
            return None
        special = _SPECIAL.get(token.word)
        if (
            token.word in _SHIFTED
            and self.ahead().word in _UNITS | {"QUARTER", "DAYOFYEAR"}
            and self.ahead(2).text == ","
        ):
            special = _shift
        self.take()
        self.no_query()
        node = special(self, token) if special is not None else None
        return self.arguments_of(token) if node is None else node

    def plain_call(self, token: Token) -> Node:
        """A call without words among its arguments, as behind ``builtin.``."""
        self.expect("(")
        return self.arguments_of(token)

    def arguments_of(self, token: Token) -> Node:
        name = token.text.lower()
        if self.token.text == "*" and self.ahead().text == ")":
            raise Unreadable(f"{name}(*)", "Name the columns; count() counts rows.", "DEFINITION-023")
        if self.token.word in {"DISTINCT", "ALL"} and self.ahead().kind != "operator":
            self.take()
        arguments = self.arguments()
        if self.token.word in {"OVER", "FILTER", "WITHIN"}:
            fix = "Aggregates belong into .window(...).aggregate(name=count()); a subquery into an operator of its own."
            raise Unreadable(f"{name}(...) {self.token.word}", fix, "DEFINITION-023")
        if name in {"trim", "ltrim", "rtrim"}:
            arguments = arguments[::-1]  # trim(characters, text), as TRIM(characters FROM text)
        return Call(name, arguments)

    def arguments(self) -> tuple[Node, ...]:
        """Expressions up to a closing parenthesis, which is taken."""
        parts: list[Node] = []
        while not self.accept(")"):
            if parts:
                self.expect(",")
            if self.token.kind in {"word", "quoted"} and self.ahead().text == "=>":
                raise Unreadable("a named argument", "Give arguments by their order.")
            parts.append(self.expression())
        return tuple(parts)

    def no_query(self) -> None:
        if self.token.word in {"SELECT", "WITH"} and self.ahead().text not in _SEPARATORS:
            raise Unreadable("a subquery", _SUBQUERY, "DEFINITION-023")

    def type(self) -> str:
        """A type, up to the end of it."""
        first = self.take()
        if first.kind != "word":
            self.position -= 1
            raise self.unexpected("a type expected, ")
        words, depth = [first.text], 0
        while (
            depth
            or self.token.text in {"(", "<"}
            or self.token.word == "TO"
            or self.tokens[self.position - 1].word
            in {
                "INTERVAL",
                "TO",
            }
        ):
            if self.token.kind == "end":
                raise self.unexpected("a type expected, ")
            depth += {"(": 1, "<": 1, ")": -1, ">": -1, ">>": -2}.get(self.token.text, 0)
            words.append(self.take().text)
        return _known(" ".join(words))


def _check_amount(value: Node, unit: str) -> None:
    """Refuse what is no number of a unit; seconds alone have a fraction."""
    written = value.arguments[0] if isinstance(value, Call) else value
    amount = str(written.value) if isinstance(written, Literal) else ""
    if not re.fullmatch(r"\s*[+-]?\d+(\.\d*)?\s*" if unit == "SECOND" else r"\s*[+-]?\d+\s*", amount):
        raise Unreadable(f"an interval of {amount} {unit}", "Write whole numbers; seconds alone have a fraction.")


def _names(node: Node) -> tuple[str, ...]:
    """The names of ``a.b.c`` in lower case; empty for anything else."""
    if isinstance(node, Field):
        before = _names(node.value)
        return (*before, node.name.lower()) if before else ()
    return (node.name.lower(),) if isinstance(node, Column) else ()


def _known(text: str) -> str:
    kind = known(text)
    if kind is None and text.lower() not in {"variant", "interval"}:
        near = closest(text, SCALAR_NAMES)
        fix = f"{near}Types are {', '.join(SCALAR_NAMES)}, decimal(p,s) and array<...>."
        raise Unreadable(f"the type {text!r}", fix)
    return str(kind) if kind else text.lower()


_SEPARATORS = frozenset({",", ")", "=", "<>", "<", ">", "<=", ">=", "+", "-", "/", "%", "||", "IS", "AND", "OR", "."})
"""What may follow a column; none of it begins a query."""
_FOLLOWING = frozenset(
    {*_SEPARATORS, "==", "!=", "<=>", "!>", "!<", "*", "|", "^", "&", "]", "::", "[", "DIV", "THEN", "ELSE", "END"}
) - {"+", "-"}
"""What may follow a value and begins none."""


def _cast(reader: _Reader, token: Token) -> Node:
    value = reader.expression()
    reader.expect("AS")
    kind = reader.type()
    reader.expect(")")
    return Cast(value, kind, attempt=token.word == "TRY_CAST")


def _extract(reader: _Reader, _: Token) -> Node | None:
    if reader.token.kind == "end" or reader.ahead().word != "FROM":
        return None
    if reader.token.kind not in {"word", "quoted"}:
        shown = f"{reader.token.text!r} before FROM"
        raise Unreadable(shown, "Write the part as a word: extract(YEAR FROM at), or date_part('YEAR', at).")
    part = Literal(reader.take().text.lower(), "string")
    reader.expect("FROM")
    value = reader.expression()
    reader.expect(")")
    return Call("extract", (part, value))


def _trim(reader: _Reader, _: Token) -> Node | None:
    start = reader.position
    side = reader.accept("BOTH", "LEADING", "TRAILING")
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(side, "trim")
    characters = None if reader.token.word == "FROM" else reader.binary(0)
    if not reader.accept("FROM"):
        reader.position = start
        return None
    value = reader.expression()
    reader.expect(")")
    return Call(name, (value,) if characters is None else (value, characters))


def _position(reader: _Reader, _: Token) -> Node | None:
    start, needle = reader.position, reader.binary(0)
    if not reader.accept("IN"):
        reader.position = start
        return None
    text = reader.binary(0)
    reader.expect(")")
    return Call("position", (needle, text))


def _substring(reader: _Reader, _: Token) -> Node | None:
    start, text = reader.position, reader.expression()
    if not reader.accept("FROM"):
        reader.position = start
        return None
    arguments = [text, reader.expression()]
    if reader.accept("FOR"):
        arguments.append(reader.expression())
    reader.expect(")")
    return Call("substring", tuple(arguments))


def _overlay(reader: _Reader, _: Token) -> Node | None:
    start, text = reader.position, reader.expression()
    if not reader.accept("PLACING"):
        reader.position = start
        return None
    arguments = [text, reader.expression()]
    reader.expect("FROM")
    arguments.append(reader.expression())
    if reader.accept("FOR"):
        arguments.append(reader.expression())
    reader.expect(")")
    return Call("overlay", tuple(arguments))


def _shift(reader: _Reader, token: Token) -> Node:
    """A unit, then two arguments; with one argument behind it the word is a column, as in ``datediff(day, moment)``."""
    unit = reader.take()
    reader.expect(",")
    arguments = reader.arguments()
    if len(arguments) == 1:
        return Call(token.text.lower(), (Column(unit.text), *arguments))
    name = "timestampdiff" if "DIFF" in token.word else "timestampadd"
    return Call(name, (Literal(unit.text.lower(), "string"), *arguments))


def _struct(reader: _Reader, _: Token) -> Node:
    parts: list[Node] = []
    while not reader.accept(")"):
        if parts:
            reader.expect(",")
        value = reader.expression()
        name = reader.take().text if reader.accept("AS") else value.name if isinstance(value, (Column, Field)) else ""
        parts += [Literal(name or f"col{len(parts) // 2 + 1}", "string"), value]
    return Call("named_struct", tuple(parts))


_SPECIAL: dict[str, Callable[[_Reader, Token], Node | None]] = {
    "CAST": _cast,
    "TRY_CAST": _cast,
    "EXTRACT": _extract,
    "TRIM": _trim,
    "POSITION": _position,
    "SUBSTRING": _substring,
    "SUBSTR": _substring,
    "OVERLAY": _overlay,
    "STRUCT": _struct,
}
