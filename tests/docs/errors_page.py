"""Write docs/errors.md from the code: every error with what was expected and what to do.

python tests/docs/errors_page.py > docs/errors.md
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = re.compile(r'code="([A-Z]+-\d+)"')
HEAD = """\
# Errors

Every error says where it is, what was expected, what was found and what to do; `--json` gives the same parts as
`{"error": {"code", "where", "expected", "got", "fix"}}`. The exit status is 1; wrong usage of a verb is 2, an abort 130.
An exception without a code is none that floodmark foresaw: its traceback is kept.

This page is written from the code: `python tests/docs/errors_page.py > docs/errors.md`. Words in `<angle brackets>` stand for
what the message fills in.
"""
FAMILIES = {
    "DEFINITION": "An operator, contract, source or workspace is written wrongly.",
    "PLAN": "What is deployed and what is defined do not fit together.",
    "CAPABILITY": "Right, but not possible here.",
    "STATE": "State or a checkpoint does not belong to what reads it.",
    "CONNECTOR": "A source's input is missing, broken or has changed.",
    "DELIVERY": "What a delivery brings does not reach its sink.",
    "SERVE": "A question to `floodmark serve` has no answer.",
    "EXECUTION": "A run failed.",
    "USER": "A function of yours raised.",
    "LIFECYCLE": "The action does not fit the moment.",
    "SETUP": "The machine lacks something.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """One place that raises a code."""

    code: str
    where: str
    expected: str
    fix: str


CONSTANT = re.compile(r"^([A-Z][A-Z_]+) = (\d+)(?:\.0)?$", re.MULTILINE)
"""A number that errors name: a message shows it, so this page does."""


def _constants() -> dict[str, str]:
    """Names of whole numbers at the top of modules -> their value, where it is the same in all modules."""
    values: dict[str, set[str]] = {}
    for file in _sources():
        for name, value in CONSTANT.findall(file.read_text("utf-8")):
            values.setdefault(name, set()).add(value)
    return {name: value for name, (value, *others) in values.items() if not others}


def _sources() -> list[Path]:
    return [file for folder in ("src", "demo") for file in (ROOT / folder).rglob("*.py")]


def raised() -> Iterator[Raised]:
    """Every error in the code, in order of file and line; those of a function that several places call, as of the places."""
    scopes = [
        node
        for file in sorted(_sources())
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    shared: dict[str, tuple[list[str], list[Raised]]] = {}
    for scope in scopes:
        parameters = [argument.arg for argument in (*scope.args.args, *scope.args.kwonlyargs)]
        handed_on = {f"<{_short(ast.Name(name))}>" for name in parameters if name not in {"self", "where"}}
        found = [one for one in _of(scope) if any(text in f"{one.expected} {one.fix}" for text in handed_on)]
        if found and scope.name in SHARED:
            shared[scope.name] = (parameters, found)
    for scope in scopes:
        yield from [] if scope.name in shared else _of(scope)
        for call in _calls(scope):
            parameters, found = shared.get(getattr(call.func, "id", ""), ([], []))
            names = _texts(scope, call.lineno)
            given = dict(zip(parameters, (_text(argument, names) for argument in call.args), strict=False))
            for one in found:
                where, expected, fix = (_filled(text, given) for text in (one.where, one.expected, one.fix))
                yield Raised(code=one.code, where=where, expected=expected, fix=fix)


SHARED = {"one_of", "unfit_setting", "columns_of", "new_columns", "unfit_function"}
"""Functions that make an error for several places."""


def _filled(text: str, given: dict[str, str]) -> str:
    for name, value in given.items():
        text = text.replace(f"<{_short(ast.Name(name))}>", value)
    return text


def _calls(scope: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(scope) if isinstance(node, ast.Call)]


def _of(scope: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Raised]:
    """The errors that stand in a function."""
    for call in _calls(scope):
        code = next((_text(k.value, {}) for k in call.keywords if k.arg == "code"), "")
        if re.fullmatch(r"[A-Z]+-\d+", code) and len(call.args) >= 4:
            names = _texts(scope, call.lineno)
            where, expected, _, fix = (_text(argument, names) for argument in call.args[:4])
            yield Raised(code=code, where=where, expected=expected, fix=fix)


def codes() -> set[str]:
    """Every code that stands in the code."""
    return {code for file in _sources() for code in CODE.findall(file.read_text("utf-8"))}


def page() -> str:
    """The whole page."""
    found: dict[str, list[Raised]] = {code: [] for code in codes()}
    for one in raised():
        if one.code in found and one not in found[one.code]:
            found[one.code].append(one)
    constants = {f"<{_short(ast.Name(name))}>": value for name, value in _constants().items()}
    parts = [HEAD]
    for family, about in FAMILIES.items():
        of_family = sorted(code for code in found if code.startswith(f"{family}-"))
        if of_family:
            parts.append(f"\n## {family}\n\n{about}\n")
            parts += [_filled_in(_entry(code, found[code]), constants) for code in of_family]
    return "".join(parts)


def _entry(code: str, places: list[Raised]) -> str:
    lines = [f"- {_code(one.where)}: expected {_plain(one.expected)}. {_plain(one.fix)}" for one in places]
    return f"\n### {code}\n\n" + "\n".join(dict.fromkeys(lines or ["- See the message."])) + "\n"


def _filled_in(entry: str, constants: dict[str, str]) -> str:
    for name, value in constants.items():
        entry = entry.replace(f"`{name}`", value).replace(name, value)
    return entry


def _code(text: str) -> str:
    return f"`{text.replace('`', '')}`"


def _plain(text: str) -> str:
    text = text.strip().rstrip(".")
    return re.sub(r"(?<!`)(<[^<>`]+>)(?!`)", r"`\1`", text) if "`" not in text else text


def _texts(scope: ast.AST, before: int) -> dict[str, str]:
    """Names of a function and the text each was last assigned before a line."""
    found: dict[str, tuple[int, str]] = {}
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and node.lineno <= before:
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=True))
                for name, value in pairs:
                    text = _text(value, {})
                    if isinstance(name, ast.Name) and not re.fullmatch(r"(<[^<>]*>)*", text):
                        found[name.id] = max(found.get(name.id, (0, "")), (node.lineno, text))
    return {name: text for name, (_, text) in found.items()}


def _text(node: ast.AST, names: dict[str, str]) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(value, names) for value in values)
        case ast.FormattedValue(value=ast.Call(func=ast.Name(id="closest"))):
            return ""
        case ast.FormattedValue(value=value):
            return _text(value, {}) if isinstance(value, ast.Constant) else f"<{_short(value)}>"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left, names) + _text(right, names)
        case ast.IfExp(body=body):
            return _text(body, names)
        case ast.Call(func=ast.Name(id="closest")):
            return ""
        case ast.Call(func=ast.Attribute(attr="nearest")):
            return "Columns: <describe>."
        case ast.Name(id=name) if name in names:
            return names[name]
        case _:
            return f"<{_short(node)}>"


def _short(node: ast.AST) -> str:
    """The last name in an expression, as a word."""
    names = [
        n.attr if isinstance(n, ast.Attribute) else n.id
        for n in ast.walk(node)
        if isinstance(n, (ast.Attribute, ast.Name))
    ]
    return (names or ["value"])[0].strip("_").replace("_", " ")


if __name__ == "__main__":
    sys.stdout.write(page())
