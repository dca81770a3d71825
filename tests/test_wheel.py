"""The wheel, installed into an empty environment, has all it needs: presets above all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("pyproject.toml", "README.md", "LICENSE", "models", "runners", "presets", "tui")


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output; nothing of this environment's Python settings goes along."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=clean, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that the checkout stays as it is."""
    source = tmp_path_factory.mktemp("source")
    for part in PARTS:
        if (ROOT / part).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, source / part, ignore=ignored)
        else:
            shutil.copy(ROOT / part, source)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", cwd=source)
    [built] = (source / "dist").glob("*.whl")
    return built


def test_the_wheel_holds_every_package_preset_and_page(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("models", "runners", "presets", "tui"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".toml", ".tcss", ".css", ".js", ".jinja"):
                assert path.relative_to(ROOT).as_posix() in held
    assert not any(name.startswith(("tests/", "benchmarks/", "examples/")) for name in held)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Path]:
    """An empty one; removed at once, for it grows to a gigabyte."""
    folder = tmp_path / "venv"
    run(sys.executable, "-m", "venv", folder, cwd=tmp_path)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.timeout(1200)
def test_presets_are_there_in_an_empty_environment(
    wheel: Path, environment: Path, tmp_path: Path
) -> None:
    binaries = environment / "bin"
    constraints = ROOT / "constraints.txt"
    run(binaries / "python", "-m", "pip", "install", "-q", "-c", constraints, wheel, cwd=tmp_path)
    code = "import runners.presets as p; print(p.BUILT_IN, *p.names(), sep='\\n')"
    folder, *names = run(binaries / "python", "-c", code, cwd=tmp_path).splitlines()
    assert Path(folder).is_relative_to(environment)
    listed = run(binaries / "distrain", "presets", cwd=tmp_path)
    assert {"single", "ddp", "imagenet-resnet50-amp"} <= set(names)
    assert all(name in listed for name in names)
