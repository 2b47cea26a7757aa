"""Which folders workers of a local Spark search for modules besides their own."""

from __future__ import annotations

import sys
import sysconfig

from floodmark.core.import_path import import_folders


def test_workers_search_the_workspace_and_neither_pythons_own_modules_nor_packages(tmp_path):
    packages = tmp_path / "site-packages"
    packages.mkdir()
    path = [str(tmp_path), "", sysconfig.get_path("stdlib"), str(packages), str(tmp_path / "gone"), str(tmp_path)]
    assert import_folders(path) == (str(tmp_path),)
    assert not [folder for folder in import_folders(sys.path) if folder.startswith(sysconfig.get_path("stdlib"))]
