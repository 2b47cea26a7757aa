"""The files that `--from` names, by a path, folder or glob; their format and encoding."""

from __future__ import annotations

import codecs
import gzip
import re
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from floodmark.connectors.files import ENDINGS, Format
from floodmark.core.errors import ConnectorError, closest

_TEXTS = {".txt", ".log", ".dat", ".data", ".psv", ""}
"""Endings that do not give the format; the format is inferred from the text."""
_SIGNS = ",;\t|"
_WEB_LOG = re.compile(r'\S+ \S+ \S+ \[[^\]]+\] "')
"""The beginning of a line of a web server's log: client, identity, user, time, request."""
_WEB_LOG_FIELDS = r"""capture("^(?<client>\S+) \S+ (?<user>\S+) \[(?<at>[^\]]+)\] \"(?<request>[^\"]*)\" (?<status>\d+) (?<bytes>\S+)")"""
_HEAD = 1 << 20
_EXPECTED = "files ending in .csv, .tsv, .json, .jsonl, .ndjson, .txt (each also with .gz) or .parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Files of one format.

    Args:
        paths: paths, sorted by name.
        glob: pattern that names the files for ``Files``.
        name: name of the file, the folder, or the folder of the glob.
        format: format of all files.
        explicit_format: whether ``Files`` needs ``format``, because the ending does not give it.
        encoding: encoding of the text.
        left_out: number of other files there, with another ending.
    """

    paths: tuple[Path, ...]
    glob: str
    name: str
    format: Format
    explicit_format: bool
    encoding: str
    left_out: int = 0


def find(path_or_glob: str) -> Found:
    """(path of a file or folder, or glob) -> its files.

    Raises:
        ConnectorError: CONNECTOR-080, there is no file; CONNECTOR-081, files of another kind; CONNECTOR-082, a file cannot be read.
    """
    path = Path(path_or_glob).expanduser().absolute()
    if path.is_file():
        sign = "." if "." in path.name else path.name[0]
        return _described([path], path.parent / path.name.replace(sign, f"[{sign}]", 1), path.name)
    if path.is_dir():
        for pattern in ("*", "**/*"):
            if files := [file for file in sorted(path.glob(pattern)) if _takes(file)]:
                return _most(files, path / pattern, path.name)
        raise ConnectorError("--from", _EXPECTED, f"none in {path}", "Name another folder.", code="CONNECTOR-080")
    first_wildcard = next((n for n, part in enumerate(path.parts) if any(sign in part for sign in "*?[")), None)
    if first_wildcard is not None:
        base = Path(*path.parts[:first_wildcard])
        files = [file for file in sorted(base.glob(str(Path(*path.parts[first_wildcard:])))) if file.is_file()]
        if files:
            return _most(files, path, base.name)
    near = [] if not path.parent.is_dir() else [file.name for file in path.parent.iterdir()]
    fix = f"{closest(path.name, near)}Correct the path; a folder or a glob in quotes will do as well."
    raise ConnectorError("--from", "a file, a folder or a glob", f"nothing at {path}", fix, code="CONNECTOR-080")


def _takes(file: Path) -> bool:
    return file.is_file() and not file.name.startswith((".", "_")) and ending(file) in ENDINGS


def ending(file: Path) -> str:
    """The ending of a file's name in lower case, without ``.gz``."""
    return Path(file.name.removesuffix(".gz")).suffix.lower()


def _most(files: list[Path], pattern: Path, name: str) -> Found:
    """The files with the most common ending."""
    endings = Counter("".join((ending(file), ".gz" if file.name.endswith(".gz") else "")) for file in files)
    most = endings.most_common(1)[0][0]
    chosen = [file for file in files if file.name.endswith(most)]
    if len(endings) > 1 or pattern.name == "*":
        pattern = pattern.with_name(
            f"{pattern.name.removesuffix('*')}*{most}" if pattern.name.endswith("*") else f"*{most}"
        )
    return _described(chosen, pattern, name, left_out=len(files) - len(chosen))


def _described(files: list[Path], pattern: Path, name: str, left_out: int = 0) -> Found:
    kind = ENDINGS.get(ending(files[0]))
    if kind == "parquet":
        if files[0].name.endswith(".gz"):
            raise _other(files[0])
        encoding, explicit_format = "utf-8", False
    else:
        head = _head(files[0])
        encoding, explicit_format = encoding_of(head), kind is None
        kind = kind or _format_of(head.decode(encoding, errors="replace"), files[0])
    return Found(
        paths=tuple(files),
        glob=pattern.as_posix(),
        name=name,
        format=kind,
        explicit_format=explicit_format,
        encoding=encoding,
        left_out=left_out,
    )


def _head(file: Path) -> bytes:
    try:
        with gzip.open(file) if file.name.endswith(".gz") else file.open("rb") as stream:
            return stream.read(_HEAD)
    except (OSError, EOFError) as error:
        fix = "Mend the file, or start with a smaller part of it."
        raise ConnectorError(
            f"--from {file}", "a file that can be read", str(error), fix, code="CONNECTOR-082"
        ) from error


def encoding_of(head: bytes) -> str:
    """(first bytes of a text) -> its encoding: UTF-16 with a byte order mark; else the first of UTF-8, Windows-1252 and Latin-1 that decodes them."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for encoding in ("utf-8", "cp1252"):
        try:
            codecs.getincrementaldecoder(encoding)().decode(head)
        except UnicodeDecodeError:
            continue
        return encoding
    return "latin-1"


def _format_of(text: str, file: Path) -> Format:
    """The format of a text whose ending does not give it.

    Raises:
        ConnectorError: CONNECTOR-081, the text is neither JSON nor CSV.
    """
    lines = [line for line in text.splitlines()[:20] if line.strip()]
    if ending(file) in _TEXTS and lines:
        if lines[0].lstrip()[0] in "{[":
            return "json"
        if all(map(_WEB_LOG.match, lines)):
            raise _other(file, _to_json(file, _WEB_LOG_FIELDS))
        if any(lines[0].count(sign) and len({line.count(sign) for line in lines}) == 1 for sign in _SIGNS):
            return "csv"
        raise _other(file, _to_json(file, "{line: .}"))
    raise _other(file)


def _to_json(file: Path, fields: str) -> str:
    """Advice with the command that makes a JSON object of every line of a text."""
    made = shlex.quote(f"{file.stem}.jsonl")
    cat = "zcat" if file.name.endswith(".gz") else "cat"
    return (
        f"Make an object of each line: {cat} {shlex.quote(str(file))} | jq -Rc '{fields}' > {made}, then: --from {made}"
    )


def _other(file: Path, fix: str = "") -> ConnectorError:
    fixes = {".xlsx": "Save the sheet as CSV.", ".xls": "Save the sheet as CSV.", ".zip": "Unzip it."}
    fix = fix or fixes.get(file.suffix.lower(), "Convert it to CSV, JSON lines or Parquet, or rename it.")
    return ConnectorError(f"--from {file}", _EXPECTED, file.name, fix, code="CONNECTOR-081")
