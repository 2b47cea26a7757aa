"""Writing a new workspace from the templates beside this module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from floodmark.cli.inference import Looked
from floodmark.core.errors import LifecycleError
from floodmark.spec.workspace import Engine

_TEMPLATES = Path(__file__).with_name("template")
_ENDING = ".tmpl"
_DELIMITER_OF_CSV = ","


def scaffold(folder: Path, looked: Looked | None, engine: Engine = "embedded") -> list[Path]:
    """Write a workspace: the sample shop, or one over data that was looked at.

    Args:
        folder: new, or empty.
        looked: data that was looked at; None for the sample.
        engine: of ``dev``.

    Returns:
        The files written, relative to the folder.

    Raises:
        LifecycleError: LIFECYCLE-020, the folder holds something already.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        fix = "Choose another name, or empty it first; nothing was changed."
        raise LifecycleError(
            f"folder {folder}", "a new or empty folder", "one with files in it", fix, code="LIFECYCLE-020"
        )
    values = {"name": folder.name, "project": _project(folder.name), "dev_engine": engine} | (
        {} if looked is None else _values(looked)
    )
    written = [_write(kind, folder, values) for kind in ("common", "shop" if looked is None else "data")]
    return sorted(path for paths in written for path in paths)


def _project(folder: str) -> str:
    """A folder's name as one pip takes for a project: letters, digits, and dots or dashes between them."""
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
    timed = looked.event_time is not None
    names = ["Contract", *(["EventTime"] if timed else []), "Stream", "Tumbling", "count", "operator"]
    lines = [*_standard_imports(looked), f"from floodmark import {', '.join(names)}"]
    if any(f.name != f.column or f.digits for f in looked.fields):
        lines.append("from pydantic import Field")
    path = looked.path.parent / looked.path.name.replace(".", "[.]", 1)  # a glob for this one file
    return {
        "source": looked.source,
        "contract": looked.contract,
        "file": looked.path.name,
        "looked_at": f"{'all' if looked.whole else 'the first'} {looked.rows:,} rows",
        "imports": "\n".join(lines) + "\n",
        "class_arguments": "" if timed else ', event_time="ingestion"',
        "fields": _fields(looked),
        "path": f'"{path.as_posix()}"',
        "files_arguments": "" if looked.delimiter in {None, _DELIMITER_OF_CSV} else f", delimiter={looked.delimiter!r}",
        "key_by": f'.key_by("{looked.key}")' if looked.key else "",
        "per": f"{looked.key} and " if looked.key else "",
    }


def _standard_imports(looked: Looked) -> list[str]:
    kinds = " ".join(f.type for f in looked.fields if f.name != looked.event_time)
    moments = [name for name in ("date", "datetime") if name in kinds.replace("[", " ").replace("]", " ").split()]
    lines = [f"from datetime import {', '.join(moments)}"] if moments else []
    lines += ["from decimal import Decimal"] if "Decimal" in kinds else []
    return [*lines, ""] if lines else []


def _fields(looked: Looked) -> str:
    lines = []
    if looked.event_time is None:
        lines.append("# no column is a time without gaps, so a row's event time is the moment it lands")
    for field in looked.fields:
        kind = "EventTime" if field.name == looked.event_time else field.type + (" | None" if field.nullable else "")
        arguments = ["default=None"] if field.nullable else []
        arguments += [f'alias="{field.column}"'] if field.name != field.column else []
        arguments += [f"max_digits={field.digits[0]}", f"decimal_places={field.digits[1]}"] if field.digits else []
        default = (
            " = None" if arguments == ["default=None"] else f" = Field({', '.join(arguments)})" if arguments else ""
        )
        note = f"  # {field.note}" if field.note else ""
        lines.append(f"{field.name}: {kind}{default}{note}")
    lines += [f"# not taken: {reason}" for reason in looked.left_out]
    return "\n".join(f"    {line}" for line in lines) + "\n"
