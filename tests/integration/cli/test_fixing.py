"""`doctor --fix horovod`, as far as it can be tested without a compiler."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from distrain.runners.cli.horovod_install import InstallLines, render_progress
from distrain.runners.horovod.install import Progress
from tests.support.fake_nvml import fake_torch

from .conftest import ROOT, Distrain

WORKS = """
def init(): ...
def gloo_built(): return True
mpi_built = nccl_built = cuda_built = lambda: False
"""


def horovod(folder: Path, code: str) -> str:
    """Return a PYTHONPATH with a fake torch and a Horovod that runs `code` when it is imported."""
    package = folder / "path" / "horovod" / "torch"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").write_text(code)
    return os.pathsep.join(map(str, [folder / "path", fake_torch(folder, cuda=None), ROOT]))


def test_a_working_installation_is_left_unchanged(distrain: Distrain, tmp_path: Path) -> None:
    path = horovod(tmp_path, WORKS)
    done = distrain(
        "doctor", "--fix", "horovod", PYTHONPATH=path, XDG_CACHE_HOME=str(tmp_path / "cache")
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("(gloo) is installed and works\n")


def test_a_missing_compiler_is_reported_in_one_sentence(distrain: Distrain, tmp_path: Path) -> None:
    path = horovod(tmp_path, "raise ImportError('as it is')")
    done = distrain(
        "doctor",
        "--fix",
        "horovod",
        PYTHONPATH=path,
        PATH=str(tmp_path),
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith("distrain: g++ was not found")
    assert "Traceback" not in done.stderr


def test_other_packages_cannot_be_fixed(distrain: Distrain) -> None:
    done = distrain("doctor", "--fix", "torch")
    assert done.returncode == 2
    assert "invalid choice: 'torch'" in done.stderr


def test_plain_lines_report_stages_and_tenths_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    lines = InstallLines()
    for share in (None, 0.0, 0.04, 0.12, 0.13, 0.31):
        lines.show(Progress("building", share, f"at {share}"))
    lines.show(Progress("checking"))
    lines_without_time = [line.split("  ", 1)[1] for line in stderr.getvalue().splitlines()]
    assert lines_without_time == ["building", "building  12%", "building  31%", "checking"]


def test_the_live_progress_fits_the_terminal_and_strips_control_characters() -> None:
    now = Progress("building", 0.5, "\x1b[2J" + "x" * 200)
    head, line = render_progress(now, 60).plain.splitlines()
    assert head == f"building … {'━' * 15}{'─' * 15}  50%"
    assert len(line) == 60
    assert "\x1b" not in line
