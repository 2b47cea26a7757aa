"""What mkdocs makes the site of: the pages of docs/, with README.md as the first one, the other pages of the repository, and a reference from docstrings.

Markdown stays readable in the repository: links go from file to file there. In the site a link to a page leads to that page, and a link to another
file of the repository becomes the name of the file.
"""

from __future__ import annotations

import re
from inspect import isclass, isfunction
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parent
FIRST = "README.md"
REFERENCE = "reference.md"
SHOWN = frozenset({"README.md", "picture.svg"})
"""Files of an example that are in the site."""
LINK = re.compile(
    r"(!?)\[((?:[^\[\]]|\[[^\]]*\]|!\[[^\]]*\]\([^)]*\))*)\]\((?!\w+://|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)"
)
NAMED = re.compile(r"^```(\w+) ([^\n]+)$", re.MULTILINE)
FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def outside() -> dict[str, str]:
    """Page or picture outside of docs/ -> its path in the site."""
    pages = {FIRST: "index.md", **{name: name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SKILL.md")}}
    examples = (
        path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "examples").rglob("*")) if path.name in SHOWN
    )
    return pages | {path: path for path in (*examples, "floodmark-airflow/README.md")}


def placed(path: str) -> str | None:
    """(file of the repository) -> its path in the site; None if it is not in the site."""
    if path in outside():
        return outside()[path]
    inside = path.removeprefix("docs/")
    return inside if inside != path and (ROOT / path).is_file() else None


def linked(text: str, origin: str) -> str:
    """The text of a page with links as they are in the site.

    Args:
        text: Markdown.
        origin: the page's file in the repository.
    """
    parts = FENCED.split(text)
    here = PurePosixPath(placed(origin) or origin)

    def led(match: re.Match[str]) -> str:
        image, shown, link, anchor = (
            match[1],
            linked(match[2], origin) if "](" in match[2] else match[2],
            match[3],
            match[4] or "",
        )
        target = (ROOT / origin).parent.joinpath(link).resolve().relative_to(ROOT).as_posix()
        place = placed(target)
        if place is None:
            return shown
        up = "../" * (len(here.parts) - 1)
        return f"{image}[{shown}]({up}{place}{anchor})"

    return "".join(part if part.startswith("```") else LINK.sub(led, part) for part in parts)


def reference() -> str:
    """A page of all public names, by the package that defines them."""
    import floodmark  # noqa: PLC0415 - what the site is about

    homes: dict[str, list[str]] = {}
    for name in floodmark.__all__:
        value = getattr(floodmark, name)
        if isclass(value) or isfunction(value):
            homes.setdefault(value.__module__, []).append(f"{value.__module__}.{value.__qualname__}")
    others = sorted(set(floodmark.__all__) - {path.rsplit(".", 1)[1] for paths in homes.values() for path in paths})
    lines = ["# Reference", "", "What `from floodmark import ...` offers, from its docstrings.", ""]
    for module in sorted(homes):
        lines += [f"## {module.removeprefix('floodmark.')}", "", *(f"::: {path}\n" for path in sorted(homes[module]))]
    return "\n".join([*lines, "## Types of fields", "", ", ".join(f"`{name}`" for name in others), ""])


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and pictures that are not in docs/."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - an extra

    for origin, place in outside().items():
        files.append(File.generated(config, place, content=(ROOT / origin).read_text("utf-8")))
    files.append(File.generated(config, REFERENCE, content=reference()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of a page as they are in the site."""
    place = page.file.src_uri
    if place == REFERENCE:
        return markdown
    origins = {there: here for here, there in outside().items()}
    return NAMED.sub(_titled, linked(markdown, origins.get(place, f"docs/{place}")))


def _titled(fence: re.Match[str]) -> str:
    """The first line of a block: a file's name becomes its title, any other word behind the language goes."""
    return f'```{fence[1]} title="{fence[2]}"' if "." in fence[2] else f"```{fence[1]}"
