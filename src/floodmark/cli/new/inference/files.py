"""The files that `--from` names, by a path, folder or glob; their format and encoding."""

from __future__ import annotations

import codecs
import gzip
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from floodmark.connectors.formats.text import fields_of
from floodmark.connectors.readers.files import ENDINGS, Format
from floodmark.core.errors import ConnectorError, closest
from floodmark.spec.rows.connector import PATTERNS

_TEXTS = {".txt", ".log", ".dat", ".data", ".psv", ""}
"""Endings that do not give the format; the format is inferred from the text."""
_SIGNS = ",;\t|"
_MATCHING = 0.9
"""Least share of the first lines that match the pattern of a text, or are logfmt."""
_PAIRS = 2
"""Least number of pairs in a line of logfmt."""
_HEAD = 1 << 20
_EXPECTED = "files ending in .csv, .tsv, .json, .jsonl, .ndjson, .txt, .log (each also with .gz) or .parquet"


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
        pattern: of a line of text, as of ``Files``; None for other formats.
        left_out: number of other files there, with another ending.
    """

    paths: tuple[Path, ...]
    glob: str
    name: str
    format: Format
    explicit_format: bool
    encoding: str
    pattern: str | None = None
    left_out: int = 0


def find(path_or_glob: str, pattern: str | None = None) -> Found:
    """(path of a file or folder, or glob) -> its files.

    Args:
        path_or_glob: that names the files.
        pattern: of a line, if the files are text.

    Raises:
        ConnectorError: CONNECTOR-080, there is no file; CONNECTOR-081, files of another kind; CONNECTOR-082, a file cannot be read.
    """
    path = Path(path_or_glob).expanduser().absolute()
    if path.is_file():
        sign = "." if "." in path.name else path.name[0]
        return _described([path], path.parent / path.name.replace(sign, f"[{sign}]", 1), path.name, pattern)
    if path.is_dir():
        for glob in ("*", "**/*"):
            if files := [file for file in sorted(path.glob(glob)) if _takes(file)]:
                return _most(files, path / glob, path.name, pattern)
        raise ConnectorError("--from", _EXPECTED, f"none in {path}", "Name another folder.", code="CONNECTOR-080")
    first_wildcard = next((n for n, part in enumerate(path.parts) if any(sign in part for sign in "*?[")), None)
    if first_wildcard is not None:
        base = Path(*path.parts[:first_wildcard])
        files = [file for file in sorted(base.glob(str(Path(*path.parts[first_wildcard:])))) if file.is_file()]
        if files:
            return _most(files, path, base.name, pattern)
    near = [] if not path.parent.is_dir() else [file.name for file in path.parent.iterdir()]
    fix = f"{closest(path.name, near)}Correct the path; a folder or a glob in quotes will do as well."
    raise ConnectorError("--from", "a file, a folder or a glob", f"nothing at {path}", fix, code="CONNECTOR-080")


def _takes(file: Path) -> bool:
    return file.is_file() and not file.name.startswith((".", "_")) and ending(file) in {*ENDINGS, ".log"}


def ending(file: Path) -> str:
    """The ending of a file's name in lower case, without ``.gz``."""
    return Path(file.name.removesuffix(".gz")).suffix.lower()


def _most(files: list[Path], glob: Path, name: str, pattern: str | None) -> Found:
    """The files with the most common ending."""
    endings = Counter("".join((ending(file), ".gz" if file.name.endswith(".gz") else "")) for file in files)
    most = endings.most_common(1)[0][0]
    chosen = [file for file in files if file.name.endswith(most)]
    if len(endings) > 1 or glob.name == "*":
        glob = glob.with_name(f"{glob.name.removesuffix('*')}*{most}" if glob.name.endswith("*") else f"*{most}")
    return _described(chosen, glob, name, pattern, left_out=len(files) - len(chosen))


def _described(files: list[Path], glob: Path, name: str, pattern: str | None, left_out: int = 0) -> Found:
    kind = None if pattern else ENDINGS.get(ending(files[0]))
    if kind == "parquet":
        if files[0].name.endswith(".gz"):
            raise _other(files[0])
        encoding, explicit_format = "utf-8", False
    else:
        head = _head(files[0])
        encoding, explicit_format = encoding_of(head), kind is None
        text = head.decode(encoding, errors="replace")
        kind, pattern = (kind, None) if kind else ("text", pattern) if pattern else _format_of(text, files[0])
    return Found(
        paths=tuple(files),
        glob=glob.as_posix(),
        name=name,
        format=kind,
        explicit_format=explicit_format,
        encoding=encoding,
        pattern=pattern,
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


def _format_of(text: str, file: Path) -> tuple[Format, str | None]:
    """(first lines of a text whose ending does not give its format) -> its format, and the pattern of a line of text.

    Raises:
        ConnectorError: CONNECTOR-081, the text is of no known kind.
    """
    lines = [line for line in text.removeprefix("\ufeff").splitlines()[:200] if line.strip()]
    if ending(file) in _TEXTS and lines:
        first = lines[:20]
        if first[0].lstrip()[0] == "{":
            return "json", None
        if (pattern := _pattern_of(lines)) is not None:
            return "text", pattern
        if first[0].lstrip()[0] == "[":
            return "json", None
        pairs = [fields for line in lines if len(fields := fields_of(None)(line) or {}) >= _PAIRS]
        if len(pairs) >= _MATCHING * len(lines) and all(line.count("=") for line in first):
            return "logfmt", None
        if any(first[0].count(sign) and len({line.count(sign) for line in first}) == 1 for sign in _SIGNS):
            return "csv", None
        example = shlex.quote(r"(?P<at>\S+) (?P<level>\w+) (?P<message>.*)")
        raise _other(file, f"Say what a line is, with a named group for each field: --pattern {example}")
    raise _other(file)


def _pattern_of(lines: list[str]) -> str | None:
    """The name of the pattern of a web server's log that most lines match, the one with the fewest groups of equals; None if there is none."""
    hits = {name: sum(fields_of(name)(line) is not None for line in lines) for name in PATTERNS}
    best = max(hits, key=lambda name: hits[name])
    return best if hits[best] >= _MATCHING * len(lines) else None


def _other(file: Path, fix: str = "") -> ConnectorError:
    fixes = {".xlsx": "Save the sheet as CSV.", ".xls": "Save the sheet as CSV.", ".zip": "Unzip it."}
    fix = fix or fixes.get(file.suffix.lower(), "Convert it to CSV, JSON lines or Parquet, or rename it.")
    return ConnectorError(f"--from {file}", _EXPECTED, file.name, fix, code="CONNECTOR-081")
