"""Operands: constants, names, calls, cases and lambdas, and elements and fields of these."""

from __future__ import annotations

from floodmark.spec.expressions.forms import SPECIAL, TYPED, UNITS, interval, shift, typed
from floodmark.spec.expressions.literals import number
from floodmark.spec.expressions.reader import SEPARATORS, SUBQUERY, Reader
from floodmark.spec.expressions.tokens import Token, Unreadable
from floodmark.spec.expressions.tree import Call, Case, Cast, Column, Field, Lambda, Literal, Node

_SHIFTED = frozenset({"TIMESTAMPADD", "DATEADD", "DATE_ADD", "TIMESTAMPDIFF", "DATEDIFF", "DATE_DIFF", "TIMEDIFF"})
_PACKAGES = frozenset({("builtin",), ("system", "builtin")})
"""Qualifiers that may precede a built-in function's name: ``builtin.upper(code)``."""


class Primaries(Reader):
    """Reads operands of operators."""

    def suffixed(self, node: Node) -> Node:
        """A value with its suffixes: element, field, cast, path."""
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
        """The path of a value in a variant: ``a.b[0]['c']``."""
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
        """A constant, a name, a call, or an expression in parentheses."""
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
        """A value in parentheses, a struct of several, or a lambda."""
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
        """The names of ``(a, b) ->`` if that is next; else empty."""
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
        """The lambda of one parameter if an arrow is next; else None."""
        return Lambda((name,), self.expression()) if self.accept("->") else None

    def word(self) -> Node:
        """The expression that a bare word begins."""
        token = self.take()
        word = token.word
        if word in {"NULL", "TRUE", "FALSE"}:
            return Literal(None, "void") if word == "NULL" else Literal(word == "TRUE", "boolean")
        if word == "CASE" and not self.behind_name():
            return self.case()
        if word == "INTERVAL":
            return interval(self)
        if word in TYPED and self.token.kind == "string":
            return typed(self, word)
        if word == "SELECT" and self.token.kind != "end" and self.token.text not in SEPARATORS:
            raise Unreadable("a query", SUBQUERY, "DEFINITION-023")
        return self.named_lambda(token.text) or self.called(token) or Column(token.text)

    def case(self) -> Node:
        """The case whose word CASE has been read."""
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

    def called(self, token: Token) -> Node | None:
        """The call of this name if a parenthesis is next; else None."""
        if self.token.text != "(" or self.token.kind != "operator":
            return None
        special = SPECIAL.get(token.word)
        if (
            token.word in _SHIFTED
            and self.ahead().word in UNITS | {"QUARTER", "DAYOFYEAR"}
            and self.ahead(2).text == ","
        ):
            special = shift
        self.take()
        self.no_query()
        node = special(self, token) if special is not None else None
        return self.arguments_of(token) if node is None else node

    def plain_call(self, token: Token) -> Node:
        """A call with plain arguments, as after ``builtin.``: no AS, FROM and the like."""
        self.expect("(")
        return self.arguments_of(token)

    def arguments_of(self, token: Token) -> Node:
        """The call of a function whose opening parenthesis is taken."""
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


def _names(node: Node) -> tuple[str, ...]:
    """The names of ``a.b.c`` in lower case; empty for anything else."""
    if isinstance(node, Field):
        before = _names(node.value)
        return (*before, node.name.lower()) if before else ()
    return (node.name.lower(),) if isinstance(node, Column) else ()
