"""The wheel, and an environment that has it next to the packages of the running one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT

FOLDERS = ("models", "runners", "presets", "tui")
PARTS = ("pyproject.toml", "README.md", "LICENSE", "src", *FOLDERS)


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Return the standard output of a command that succeeds.

    It inherits none of this environment's Python settings.
    """
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=clean | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(folder: Path) -> Path:
    """Build the wheel in a copy, so that the checkout stays as it is."""
    for part in PARTS:
        if (ROOT / part).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, folder / part, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / part, folder)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", cwd=folder)
    [built] = (folder / "dist").glob("*.whl")
    return built


def install(wheel: Path, folder: Path) -> Path:
    """Make an environment with the wheel, which shares the running one's packages.

    Returns its folder of programs.
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "-q", "--python", python]
    run(*pip, "install", "--no-compile", "--no-deps", "--no-index", wheel, cwd=folder.parent)
    [packages] = folder.glob("lib/python*/site-packages")
    # Python does not follow the .pth files of folders that it has from one: the wheel's distrain
    # is not hidden by an editable install.
    shared = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    (packages / "shared.pth").write_text("\n".join(shared) + "\n")
    return folder / "bin"
