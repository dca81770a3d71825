"""Imports by the names of earlier versions, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("folder", ["elsewhere", "checkout"])
def test_the_public_api_is_importable_from_runners(folder: str, tmp_path: Path) -> None:
    code = "import runners, distrain; print(runners.launch is distrain.launch)"
    done = run(code, ROOT if folder == "checkout" else tmp_path)
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("import runners.strategies", "runners.strategies is now distrain.runners.strategies"),
        ("import runners.record", "runners.record is now distrain.runners.records.reader"),
        ("import runners.nothing", "runners.nothing is no longer part of distrain"),
    ],
)
def test_an_old_module_names_its_successor(statement: str, sentence: str, tmp_path: Path) -> None:
    assert sentence in run(statement, tmp_path).stderr.splitlines()[-1]


@pytest.mark.parametrize("package", ["models", "tui"])
def test_a_folder_of_the_checkout_is_not_loaded_a_second_time(package: str) -> None:
    last = run(f"import {package}", ROOT).stderr.splitlines()[-1]
    assert last == f"ModuleNotFoundError: {package} is now distrain.{package}; change the import"


@pytest.mark.parametrize("is_package", [True, False])
def test_the_users_own_runners_wins(is_package: bool, tmp_path: Path) -> None:
    (tmp_path / "runners").mkdir()
    (tmp_path / "runners" / "mine.py").write_text("MINE = 1")
    if is_package:
        (tmp_path / "runners" / "__init__.py").touch()
    done = run("import runners.mine, distrain; print(runners.mine.MINE)", tmp_path)
    assert done.stdout == "1\n", done.stderr


def test_the_users_runners_without_init_has_the_public_api_too(tmp_path: Path) -> None:
    (tmp_path / "runners").mkdir()
    (tmp_path / "runners" / "mine.py").touch()
    done = run("from runners import launch, mine; print(launch.__module__)", tmp_path)
    assert done.stdout == "distrain.runners.runs\n", done.stderr
