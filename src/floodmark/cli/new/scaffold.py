"""Writes a new workspace from the templates beside this module."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.core.errors import LifecycleError, printable
from floodmark.core.time import describe_span
from floodmark.spec.rows.connector import Files

if TYPE_CHECKING:
    from floodmark.cli.new.inference import Looked, LookedField, Model

_TEMPLATES = Path(__file__).with_name("template")
_ENDING = ".tmpl"
BOUND = "1 hour"
"""Bound of the watermark in a new workspace, unless rows of the data come later."""
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


def scaffold(folder: Path, looked: Looked | None, *, sql: bool = False) -> list[Path]:
    """Write a workspace: the sample shop, or a workspace over inspected data.

    Args:
        folder: a new or empty folder.
        looked: the result of inspecting data; None for the sample shop.
        sql: the operators of the sample shop are files of SQL.

    Returns:
        The files written, relative to the folder.

    Raises:
        LifecycleError: LIFECYCLE-020, the folder is not empty, or is a file.
    """
    check_new(folder)
    values = {"name": printable(folder.name), "project": _project(folder.name)} | (
        {} if looked is None else _values(looked)
    )
    sample = ("sample", "sql" if sql else "shop")
    written = [_write(kind, folder, values) for kind in ("common", *(sample if looked is None else ("data",)))]
    return sorted(path for paths in written for path in paths)


def check_new(folder: Path) -> None:
    """Check that a folder is new or empty.

    Raises:
        LifecycleError: LIFECYCLE-020, the folder is not empty, or is a file.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        fix = "Choose another name, or empty it first; nothing was changed."
        raise LifecycleError(
            f"folder {folder}", "a new or empty folder", "one with files in it", fix, code="LIFECYCLE-020"
        )


def wait_for(folder: Path, source: str, milliseconds: int) -> None:
    """Raise the bound of a source's watermark, in its file of a new workspace, from ``BOUND`` to a number of milliseconds."""
    assets = folder / "assets" / f"{source}.py"
    assets.write_text(assets.read_text("utf-8").replace(f'"{BOUND}"', f'"{describe_span(milliseconds)}"'), "utf-8")


def _project(folder: str) -> str:
    """(name of a folder) -> a name of a project that pip accepts: letters and digits, with dashes between them."""
    return re.sub(r"[^A-Za-z0-9]+", "-", folder).strip("-") or "workspace"


def _write(kind: str, folder: Path, values: Mapping[str, str]) -> list[Path]:
    written = []
    for template in sorted((_TEMPLATES / kind).rglob(f"*{_ENDING}")):
        text = template.read_text("utf-8")
        relative = str(template.relative_to(_TEMPLATES / kind)).removesuffix(_ENDING)
        for name, value in values.items():
            text = text.replace("{{" + name + "}}", value)
            relative = relative.replace(f"__{name}__", value)
        relative = ".gitignore" if relative == "gitignore" else relative
        target = folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
        written.append(Path(relative))
    return written


def _values(looked: Looked) -> dict[str, str]:
    path = f"{looked.files.paths[0].name}" if len(looked.files.paths) == 1 else looked.files.glob.rsplit("/", 1)[-1]
    return {
        "source": looked.source,
        "contract": looked.contract,
        "file": path,
        "looked_at": f"{'all' if looked.whole else 'the first'} {looked.rows:,} rows",
        "imports": _imports(looked),
        "models": "".join(_model(model) for model in looked.models),
        "class_arguments": "" if looked.event_time is not None else ', event_time="ingestion"',
        "fields": _contract(looked),
        "files": _files(looked.connector),
        "key_by": f'.key_by("{looked.key}")' if looked.key else "",
        "per": f"{looked.key} and " if looked.key else "",
    }


def _files(connector: Files) -> str:
    """The source text of a connector, with only the arguments that differ from their defaults."""
    plain = {f.name: f.default for f in fields(Files)}
    field_values = {f.name: getattr(connector, f.name) for f in fields(connector)[1:]}
    arguments = [f"{name}={_literal(value)}" for name, value in field_values.items() if value != plain[name]]
    return f"Files({', '.join([_literal(connector.path), *arguments])})"


def _literal(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    return json.dumps(value, ensure_ascii=False)


def _imports(looked: Looked) -> str:
    every = [(field, looked.event_time) for field in looked.fields]
    every += [(field, None) for model in looked.models for field in model.fields]
    texts = [f"{_kind(field, event_time)}{_default(field, event_time)}" for field, event_time in every]
    used = {word for text in texts for word in re.findall(r"[A-Za-z_]+", _QUOTED.sub("", text))}
    moments = [name for name in ("date", "datetime") if name in used]
    standard = [f"from datetime import {', '.join(moments)}"] if moments else []
    standard += ["from decimal import Decimal"] if "Decimal" in used else []
    standard += ["from typing import Annotated"] if "Annotated" in used else []
    own = [name for name in ("Amount", "EventTime", "JsonText", "TimeFormat") if name in used]
    lines = [*standard, ""] if standard else []
    lines.append(
        f"from floodmark import {', '.join([*sorted([*own, 'Contract', 'Stream', 'Tumbling']), 'count', 'operator'])}"
    )
    outside = [name for name in ("AliasPath", "Field") if name in used]
    outside += ["BaseModel"] if looked.models else []
    if outside:
        lines.append(f"from pydantic import {', '.join(sorted(outside))}")
    return "\n".join(lines) + "\n"


def _model(model: Model) -> str:
    lines = [_line(field, None) for field in model.fields]
    return f'class {model.name}(BaseModel):\n    """A part of a row."""\n\n' + _indented(lines) + "\n\n"


def _contract(looked: Looked) -> str:
    lines = []
    if looked.event_time is None:
        lines.append("# no column is a time without gaps, so a row's event time is the moment it lands")
    lines += [_line(field, looked.event_time) for field in looked.fields]
    return _indented([*lines, *(f"# not taken: {reason}" for reason in looked.left_out)])


def _line(field: LookedField, event_time: str | None) -> str:
    note = f"  # {field.note}" if field.note else ""
    return f"{field.name}: {_kind(field, event_time)}{_default(field, event_time)}{note}"


def _kind(field: LookedField, event_time: str | None) -> str:
    timed = field.name == event_time
    kind = "EventTime" if timed else field.type
    kind = f"Annotated[{kind}, TimeFormat({_literal(field.format)})]" if field.format else kind
    if field.amount is not None:
        digits = [f"Field({_digits(field.digits)})"] if field.digits else []
        currency = [f"currency={_literal(field.amount.currency)}"] if field.amount.currency else []
        amount = f"Amount({', '.join([_literal(field.amount.decimal), *currency])})"
        kind = f"Annotated[{', '.join([kind, *digits, amount])}]"
    return kind + (" | None" if field.nullable and not timed else "")


def _default(field: LookedField, event_time: str | None) -> str:
    nullable = field.nullable and field.name != event_time
    arguments = ["default=None"] if nullable else []
    if field.path:
        arguments.append(f"validation_alias=AliasPath({', '.join(map(_literal, field.path))})")
    elif field.name != field.column:
        arguments.append(f"alias={_literal(field.column)}")
    arguments += [_digits(field.digits)] if field.digits and field.amount is None else []
    return " = None" if arguments == ["default=None"] else f" = Field({', '.join(arguments)})" if arguments else ""


def _digits(digits: tuple[int, int]) -> str:
    return f"max_digits={digits[0]}, decimal_places={digits[1]}"


def _indented(lines: list[str]) -> str:
    return "\n".join(f"    {line}" for line in lines) + "\n"
