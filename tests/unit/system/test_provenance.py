"""What is recorded of where a run came from."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from distrain.runners.system import provenance

CALL = "import sys; from pathlib import Path; from distrain.runners.system import provenance\n"
CALL += "provenance._git(Path(sys.argv[1]))"


def test_the_diff_keeps_its_letters_whatever_the_locale_is(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=me", "-c", "user.email=me@host"]
    (tmp_path / "train.py").write_text("# before\n")
    for words in (["init", "-q"], ["add", "train.py"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    (tmp_path / "train.py").write_text("# größer\n", "utf-8")
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run(
        [sys.executable, "-c", CALL, "diff"],
        cwd=tmp_path,
        env=os.environ | ascii_only,
        check=True,
    )
    assert "+# größer" in (tmp_path / "diff").read_text("utf-8")


def test_versions_are_known_although_the_driver_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(provenance, "DRIVER_S", 0.01)
    monkeypatch.setattr(provenance, "driver_version", answer.wait)
    found = provenance.versions()
    answer.set()
    assert "torch" in found
    assert "driver" not in found
