"""Shipping of a workspace's code to the workers: its package to those of a cluster, which import modules by name; otherwise contracts by value."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

from pyspark import SparkContext, cloudpickle
from pyspark.sql import SparkSession

from floodmark.spec.rows.contract import Contract

_CODE = "floodmark.code"
"""Setting of a session: the folder whose modules its workers import by name."""


def send(context: SparkContext, package: Path) -> None:
    """Give the executors of a cluster a package of code: Spark unpacks it in their working folders, where Python finds modules and data files.

    Args:
        context: of the application, before any of its functions in Python.
        package: folder with the code, named after its content, in a folder that lasts as long as the session.
    """
    name = f"code-{package.name}"
    own = context._conf.get("spark.executorEnv.PYTHONPATH")  # noqa: SLF001 - there is no public way to ask
    path = os.pathsep.join([name, *filter(None, [own])])
    if context.environment.get("PYTHONPATH") != path:
        archive = shutil.make_archive(str(package.with_name(name)), "zip", package)
        context.addArchive(f"{archive}#{name}")
        context.environment["PYTHONPATH"] = path


def import_by_name(spark: SparkSession, code: Path) -> None:
    """Modules of a folder, of which the workers have a package, travel by name.

    Args:
        spark: session.
        code: the folder, from which this process has imported modules.
    """
    spark.conf.set(_CODE, str(code))


_DOOR = """\
import importlib, pathlib, sys
folder = next(str(f / {name!r}) for f in pathlib.Path(__file__).parents if (f / {name!r}).is_dir())
if folder not in sys.path:
    sys.path.insert(0, folder)
del sys.modules[__name__]
importlib.invalidate_caches()
importlib.import_module(__name__)
"""
"""A module that stands for the one of its name in the unpacked package: Python finds files that travel as code, and no unpacked archive."""


def send_to_server(spark: SparkSession, package: Path, code: Path) -> None:
    """Give a session on a server of Spark Connect a package of code: workers unpack it, and import its modules by name.

    Args:
        spark: session.
        package: folder with the code, named after its content.
        code: the folder of which the package is a copy, from which this process has imported modules.
    """
    name = f"code-{package.name}"
    archive = shutil.make_archive(str(package.with_name(name)), "zip", package)
    doors = package.with_name(f"modules-{package.name}.zip")
    with ZipFile(doors, "w") as modules:
        for entry in package.iterdir():
            if entry.suffix == ".py" or (entry / "__init__.py").is_file():
                modules.writestr(f"{entry.stem}.py", _DOOR.format(name=name))
    spark.addArtifacts(f"{archive}#{name}", archive=True)
    spark.addArtifacts(str(doors), pyfile=True)
    import_by_name(spark, code)


def by_value(spark: SparkSession, contract: type[Contract]) -> None:
    """Make Spark pickle by value all modules of the folder from which a contract was imported, unless workers import them by name.

    Installed packages and floodmark itself are pickled by reference, as the workers have them.
    """
    for base in contract.__mro__:
        if base.__dict__.get("__pydantic_parent_namespace__") is not None and contract.__pydantic_complete__:
            # variables of the function that defines the class, such as the session; only incomplete classes need them
            base.__pydantic_parent_namespace__ = None  # type: ignore[attr-defined]  # the class has the attribute, see above
    root = _root(sys.modules.get(contract.__module__))
    if root is None or str(root) == spark.conf.get(_CODE, None):
        return
    for name, module in list(sys.modules.items()):
        if "." not in name and name not in {"__main__", "floodmark"} and _root(module) == root:
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # pyspark's own copy has no types


def _root(module: ModuleType | None) -> Path | None:
    """The folder on ``sys.path`` from which a module was imported; None for installed modules and modules without a file."""
    if module is None:
        return None
    top = sys.modules.get(module.__name__.partition(".")[0], module)
    locations = [getattr(top, "__file__", None), *getattr(top, "__path__", ())]
    location = next((location for location in locations if location), None)
    if (
        location is None
        or "site-packages" in location
        or "dist-packages" in location
        or location.startswith(sys.base_prefix)
    ):
        return None
    path = Path(location)
    return path.parent.parent if path.name == "__init__.py" or path.is_dir() else path.parent
