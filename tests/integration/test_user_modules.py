"""A user's own modules are found under any name, and never confused with distrain's.

Each process that takes part writes which modules it has loaded from which file.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.support import wheel
from tests.support.wheel import run

# Python imports it from PYTHONPATH as it starts.
OBSERVER = """
import atexit, json, os, sys

def write(kind):
    modules = [
        (name, os.path.realpath(module.__file__), id(module))
        for name, module in list(sys.modules.items())
        if getattr(module, "__file__", None)
    ]
    path = os.path.join(os.environ["OBSERVED"], f"{kind}-{os.getpid()}")
    with open(path, "w") as file:
        json.dump({"program": sys.orig_argv, "modules": modules}, file)
    os.rename(path, f"{path}.json")

atexit.register(write, "end")
"""
PARTS = """
import utils
from torch import nn

class LeNet(nn.Sequential):
    def __init__(self, shape, classes):
        import sitecustomize
        sitecustomize.write("rank")
        super().__init__(nn.Flatten(), nn.Linear(utils.PIXELS, classes))
"""
UTILS = """
import torch
from torch.utils.data import Dataset

PIXELS = 4

class Squares(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        import sitecustomize
        sitecustomize.write("loader")
        return torch.full((1, 2, 2), float(index)), index % 2
"""
PIPELINE = """
from distrain.models.data import Data
from utils import Squares

def squares():
    return Data(train=Squares(), eval=Squares(), classes=2, shape=(1, 2, 2))
"""
SCRIPT = """
from distrain import launch, load_preset
from models.lenet import LeNet

config = load_preset("single", {
    "model.name": "models.lenet:LeNet", "data.name": "runners.pipeline:squares",
    "data.workers": 1, "data.worker_context": "spawn",
    "train.max_steps": 1, "train.batch_size": 4, "train.threads": 1, "devices": "cpu:1",
})
print(LeNet.__name__, launch(config).wait()["status"])
"""
PRESET = """
strategy = "ddp"
devices = "cpu:1"
launcher = "torchrun"
model.name = "models.lenet:LeNet"
data = { name = "runners.pipeline:squares", workers = 1, worker_context = "spawn" }
train = { max_steps = 1, batch_size = 4, threads = 1 }
"""
OF_THE_STANDARD_LIBRARY = ("random", "statistics", "types", "queue")
WRONG = "raise SystemExit(f'{__name__} is shadowed')"


def make_project(folder: Path, *, shadowing: bool) -> Path:
    """Write a repository whose folders have the names of distrain's."""
    files = {
        "models/__init__.py": "",
        "models/lenet.py": "from models.parts import LeNet",
        "models/parts.py": PARTS,
        "runners/__init__.py": "",
        "runners/pipeline.py": PIPELINE,
        "presets/__init__.py": WRONG,
        "tui/__init__.py": WRONG,
        "utils.py": UTILS,
        "train.py": SCRIPT,
        "own.toml": PRESET,
    }
    if shadowing:
        files |= {f"{name}.py": WRONG for name in OF_THE_STANDARD_LIBRARY}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


class Install:
    """An installed distrain, whose processes write what they load."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self.binaries, self.folder = binaries, folder
        self.observed, self.runs = folder / "observed", folder / "runs"
        self.observed.mkdir()
        (folder / "observer").mkdir()
        (folder / "observer" / "sitecustomize.py").write_text(OBSERVER)

    def run(self, program: str, *words: str, cwd: Path, path: str = "") -> str:
        variables = {
            "PYTHONPATH": f"{path}{self.folder / 'observer'}",
            "OBSERVED": str(self.observed),
            "DISTRAIN_RUNS_DIR": str(self.runs),
            "OMP_NUM_THREADS": "1",
        }
        return run(self.binaries / program, *words, cwd=cwd, **variables)

    def summary(self) -> dict[str, Any]:
        shown = run(
            self.binaries / "distrain", "show", "latest", "--json",
            cwd=self.folder, DISTRAIN_RUNS_DIR=str(self.runs),
        )  # fmt: skip
        return dict(json.loads(shown))

    def check(self, project: Path, expected: set[str]) -> None:
        """Every process has loaded each file once, the user's and distrain's from their places."""
        seen: set[str] = set()
        deadline = time.monotonic() + 90  # the supervisor ends after its run
        while not seen >= expected:
            assert time.monotonic() < deadline, seen
            for path in self.observed.glob("*.json"):
                process = json.loads(path.read_text())
                kind = path.name.partition("-")[0]
                seen.add(kind if kind != "end" else program_of(process["program"]))
                check_modules(process["modules"], project, self.binaries.parent)
                path.unlink()
            time.sleep(0.05)


def program_of(words: list[str]) -> str:
    """Return the last part of a module's name, or the name of a script."""
    if "-m" in words:
        return words[words.index("-m") + 1].rpartition(".")[2]
    return Path(words[1]).name


def check_modules(modules: list[tuple[str, str, int]], project: Path, environment: Path) -> None:
    names: dict[str, dict[int, str]] = defaultdict(dict)
    for name, path, identity in modules:
        if "distrain" in path or Path(path).is_relative_to(project):
            names[path][identity] = name
        if name in OF_THE_STANDARD_LIBRARY:
            assert not Path(path).is_relative_to(project)
        if name.partition(".")[0] in ("models", "runners", "utils"):
            assert Path(path).is_relative_to(project), (name, path)
        if name.startswith("distrain.") and environment.name == "wheel":
            assert Path(path).is_relative_to(environment), (name, path)
    twice = {path: list(found.values()) for path, found in names.items() if len(found) > 1}
    assert not twice


@pytest.fixture(scope="module")
def wheel_binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    (folder / "source").mkdir()
    return wheel.install(wheel.build(folder / "source"), folder / "wheel")


@pytest.fixture(params=["wheel", "editable"])
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> Install:
    if request.param == "wheel":
        return Install(request.getfixturevalue("wheel_binaries"), tmp_path)
    binaries = Path(sys.executable).parent
    if not (binaries / "distrain").exists():
        pytest.skip("distrain is not installed here")
    return Install(binaries, tmp_path)


def test_modules_next_to_a_preset_are_found_from_other_folders(
    installed: Install, tmp_path: Path
) -> None:
    project = make_project(tmp_path / "project", shadowing=True)
    crowded = make_project(tmp_path / "elsewhere", shadowing=True)
    for path in (crowded / "models", crowded / "runners"):
        (path / "__init__.py").write_text(WRONG)
    installed.run("distrain", "run", str(project / "own.toml"), "--detach", cwd=crowded)
    installed.run("distrain", "watch", "latest", cwd=crowded)
    assert (installed.summary()["status"], installed.summary()["steps"]) == ("completed", 1)
    installed.check(project, {"rank", "loader", "supervisor", "torchrun", "distrain"})

    more = ["--set=train.max_steps=2", "--set=launcher=spawn"]
    installed.run("distrain", "resume", "latest", *more, cwd=tmp_path)
    assert (installed.summary()["status"], installed.summary()["steps"]) == ("completed", 2)
    installed.check(project, {"rank", "loader", "supervisor", "spawn", "distrain"})


def test_a_script_and_its_run_import_the_same_modules(installed: Install, tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", shadowing=False)
    printed = installed.run("python", "train.py", cwd=project, path=".:")
    assert printed == "LeNet completed\n"
    installed.check(project, {"rank", "loader", "supervisor", "train.py"})
