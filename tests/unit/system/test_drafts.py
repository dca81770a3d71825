"""Drafts of files that are written whole: those of killed writers are removed, others stay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from distrain.runners.system import files
from distrain.runners.system.files import open_replacement

WRITE = (
    "import sys, time; from pathlib import Path;"
    "from distrain.runners.system.files import open_replacement\n"
    "with open_replacement(Path('out.csv')) as file:\n"
    "    file.write('old'); file.flush(); print('open', flush=True); time.sleep(600)"
)


def test_the_draft_of_a_killed_writer_is_removed_and_that_of_a_live_one_stays(
    tmp_path: Path,
) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITE], cwd=tmp_path, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        for writer in writers:
            assert writer.stdout
            assert writer.stdout.readline() == b"open\n"
        assert len([*tmp_path.iterdir()]) == 2
        writers[0].kill()
        writers[0].wait()
        with open_replacement(tmp_path / "out.csv") as file:
            file.write("new")
        names = {path.name for path in tmp_path.iterdir()}
        assert "out.csv" in names
        assert len(names) == 2
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def test_a_draft_is_locked_until_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.csv"
    # What another writer does first, at the last moment before the file is renamed.
    monkeypatch.setattr(files.shutil, "copymode", lambda *_: files._remove_dead_drafts(path))
    with open_replacement(path) as file:
        file.write("new")
    assert path.read_text() == "new"
