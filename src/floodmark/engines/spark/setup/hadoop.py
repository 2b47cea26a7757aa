"""Hadoop's configuration of the environment, as Hadoop's clients read it: files on the class path, parts that they include, and variables in values."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Variables that name folders of the configuration, in the order in which Spark puts them on Java's class path."""
DEFAULT, DISK = "fs.defaultFS", "file:///"
"""Property with the file system of paths without a scheme, and its value for those of the disk."""
_STAGING = "spark.yarn.stagingDir"
_FILES = ("core-site.xml", "yarn-site.xml")
"""Files that a client of YARN reads; a later one wins."""
_INCLUDE, _FALLBACK = ("{http://www.w3.org/2001/XInclude}" + name for name in ("include", "fallback"))
_VARIABLE = re.compile(r"\$\{([^${}\s]+)\}")
_ENVIRONMENT = re.compile(r"env\.([^:-]+)(?:(:?-)(.*))?")
_ROUNDS = 20
"""Most times that variables in a value are replaced, as in Hadoop: a value may name another."""


def folders() -> list[Path]:
    """The folders of the configuration, first those that win. A variable may name several, as a class path does."""
    named = os.pathsep.join(os.environ.get(variable, "") for variable in VARIABLES)
    return [Path(folder) for folder in named.split(os.pathsep) if folder]


def file_of(name: str) -> Path | None:
    """(name of a file) -> the first file of the name in a folder of the configuration; None if there is none."""
    return next((file for folder in folders() if (file := folder / name).is_file()), None)


def properties(own: Mapping[str, str]) -> dict[str, str]:
    """The properties of the configuration. A value keeps variables that only Java knows.

    Args:
        own: properties that win over those of files.

    Raises:
        OSError: a file cannot be read.
        xml.etree.ElementTree.ParseError: a file is no XML.
    """
    known = dict[str, str]()
    for file in filter(None, map(file_of, _FILES)):
        known |= dict(_stated(ElementTree.parse(file).getroot(), file))  # noqa: S314 - the user's own file
    known |= own
    return {name: _replaced(value, known) for name, value in known.items()}


def naming_files(settings: Mapping[str, str]) -> dict[str, str]:
    """(settings of an application of YARN) -> those that name the cluster's file system, in full.

    To Spark a path without a scheme is one of the file system ``fs.defaultFS``, which is the cluster's in most configurations. To floodmark the path is one of the
    disk, so sessions have that for their default, and what YARN copies to its nodes needs the cluster's name.
    """
    root = properties({}).get(DEFAULT, "").rstrip("/")
    scheme = urlsplit(root).scheme
    if scheme in {"", "file"}:
        return {}
    named = {name: text.replace(f"{scheme}:///", f"{root}/") for name, text in settings.items()}
    staging = named.get(_STAGING, f"/user/{os.environ.get('HADOOP_USER_NAME') or getpass.getuser()}")
    named[_STAGING] = staging if urlsplit(staging).scheme else root + staging
    return {name: text for name, text in named.items() if text != settings.get(name)}


def _stated(element: ElementTree.Element, file: Path) -> Iterator[tuple[str, str]]:
    """(element, its file) -> names and values of the properties below the element, in their order."""
    for child in element:
        if child.tag == "property":
            name, value = (child.findtext(part, child.get(part, "")).strip() for part in ("name", "value"))
            yield name, value
        elif child.tag == _INCLUDE:
            part = file.parent / unquote(urlsplit(child.get("href", "")).path)
            fallback = child.find(_FALLBACK)
            if fallback is not None and not part.is_file():
                yield from _stated(fallback, file)
            else:
                yield from _stated(ElementTree.parse(part).getroot(), part)  # noqa: S314 - as above
        elif child.tag == "configuration":
            yield from _stated(child, file)


def _replaced(value: str, known: Mapping[str, str]) -> str:
    """A value with its variables replaced: other properties, and variables of the environment."""

    def content(variable: re.Match[str]) -> str:
        if (of_environment := _ENVIRONMENT.fullmatch(variable[1])) is None:
            return known.get(variable[1], variable[0])
        name, mark, default = of_environment.groups()
        text = os.environ.get(name)
        if mark is not None and (text is None or (mark == ":-" and not text)):
            return str(default)
        return variable[0] if text is None else text

    for _ in range(_ROUNDS):
        before, value = value, _VARIABLE.sub(content, value)
        if value == before:
            break
    return value
