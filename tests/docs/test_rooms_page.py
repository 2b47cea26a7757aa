"""docs/rooms.md says what the contracts and the packages hold, and no package is a drawer."""

from __future__ import annotations

import re

from .rooms_page import LARGE, ROOT, contracts, folder, modules, page


def test_the_page_is_what_the_contracts_and_packages_hold() -> None:
    assert (ROOT / "docs" / "rooms.md").read_text("utf-8") == page(), (
        "run: python tests/docs/rooms_page.py > docs/rooms.md"
    )


def test_a_package_of_more_than_twenty_modules_has_rooms_and_rooms_are_not_larger() -> None:
    packages = [
        init.parent.relative_to(ROOT / "src").as_posix().replace("/", ".")
        for init in (ROOT / "src").rglob("__init__.py")
    ]
    large = {package: len(modules(package)) for package in packages if len(modules(package)) > LARGE}
    assert not large, f"give these rooms, or say here why not: {large}"


def test_every_room_has_a_sentence_of_its_own() -> None:
    rooms = [
        folder(package) / room / "__init__.py"
        for package, layers in contracts().items()
        for layer in layers
        for room in layer
    ]
    sentences = [file.read_text("utf-8") for file in rooms if file.exists()]
    assert all(sentence.startswith('"""') for sentence in sentences)
    assert len(set(sentences)) == len(sentences)


def test_every_module_that_the_page_of_the_architecture_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    names = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+)(?:\.py)?(?:\.[A-Za-z_*]+)?`", text))
    parts = [folder("floodmark"), *(folder(f"floodmark.{package}") for package in ("engines", "engines.spark"))]
    missing = {
        name for name in names if not any((part / f"{name}.py").exists() or (part / name).is_dir() for part in parts)
    }
    assert len(names) > 20
    assert not missing - {"src/floodmark"}
