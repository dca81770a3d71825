"""Names of files are bytes; records are UTF-8, and so are the paths in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distrain.runners.cli import main

NAME = b"caf\xe9"  # Latin-1


@pytest.mark.parametrize("variable", ["DISTRAIN_RUNS_DIR", "TMPDIR", ""])
def test_a_folder_whose_name_is_not_utf_8_is_refused_in_one_sentence(
    variable: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / os.fsdecode(NAME)
    folder.mkdir()
    if variable:
        monkeypatch.setenv(variable, str(folder))
    else:
        monkeypatch.chdir(folder)
    assert main(["run", "single"]) == 2
    what = f"folder ${variable}" if variable else "current folder"
    expected = f"distrain: the {what} {str(folder)!a} is not valid UTF-8\n"
    assert capsys.readouterr() == ("", expected)
