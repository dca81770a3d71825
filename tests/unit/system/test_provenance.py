"""What is recorded of where a run came from."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distrain.runners.records.state import known_provenance
from distrain.runners.system import provenance

CALL = "import sys; from pathlib import Path; from distrain.runners.system import provenance\n"
CALL += "provenance._git(Path(sys.argv[1]))"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a folder with one committed file, train.py."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=me", "-c", "user.email=me@host"]
    (tmp_path / "train.py").write_text("# before\n")
    for words in (["init", "-q"], ["add", "train.py"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    return tmp_path


def test_the_diff_keeps_its_letters_whatever_the_locale_is(repository: Path) -> None:
    (repository / "train.py").write_text("# größer\n", "utf-8")
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run(
        [sys.executable, "-c", CALL, "diff"],
        cwd=repository,
        env=os.environ | ascii_only,
        check=True,
    )
    assert "+# größer" in (repository / "diff").read_text("utf-8")


def test_a_diff_that_is_cut_says_so(
    monkeypatch: pytest.MonkeyPatch, repository: Path, tmp_path: Path
) -> None:
    monkeypatch.chdir(repository)
    monkeypatch.setattr(provenance, "MAX_DIFF", 20)
    (repository / "train.py").write_text("# after\n")
    found = known_provenance({"git": provenance._git(tmp_path / "diff")})["git"]
    assert len((tmp_path / "diff").read_text("utf-8")) == 20
    assert found["dirty"]
    assert found["problem"] == "only the first 20 characters of them are kept"


def _assume_another_owner(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for name, value in {**settings, "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}.items():
        monkeypatch.setenv(name, value)


def _break_index(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    (repository / ".git" / "index").write_bytes(b"broken")


def _time_out_in_diff(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    run = subprocess.run

    def time_out(command: list[str], **options: Any) -> Any:
        if command[1] == "diff":
            raise subprocess.TimeoutExpired(command, options["timeout"])
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", time_out)


@pytest.mark.parametrize(
    ("break_git", "knows_commit", "problem"),
    [
        (_assume_another_owner, False, "commit unknown: the repository belongs to another user"),
        (_break_index, True, "uncommitted changes unknown: git diff has failed"),
        (_time_out_in_diff, True, "uncommitted changes unknown: git diff took more than 10 s"),
    ],
)
def test_where_git_does_not_answer_nothing_is_called_unchanged(
    monkeypatch: pytest.MonkeyPatch,
    repository: Path,
    break_git: Callable[[pytest.MonkeyPatch, Path], None],
    knows_commit: bool,
    problem: str,
) -> None:
    monkeypatch.chdir(repository)
    (repository / "train.py").write_text("# after\n")
    break_git(monkeypatch, repository)
    found = known_provenance({"git": provenance._git(repository / "diff")})["git"]
    assert found["dirty"] is None
    assert found["problem"].startswith(problem)
    assert bool(found["commit"]) is knows_commit


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
