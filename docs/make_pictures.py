"""Make the pictures of the app in docs/pictures: `python docs/make_pictures.py`.

It trains a few small runs for real and takes every screen at three sizes, as SVG. The run on eight
GPUs is simulated, as its name says: its record is written, and nothing trains. Pictures of a job
are made by `python docs/make_pictures.py slurm`, where there are two nodes: see `make slurm`;
those of a run on a GPU by `python docs/make_pictures.py gpu`, where there is one. Further arguments
are the names of the only pictures to make.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from textual.pilot import Pilot

from distrain.runners.bench import candidates, make, start
from distrain.runners.config.presets import load_preset
from distrain.runners.config.schema import RunConfig
from distrain.runners.groups import launch_sweep
from distrain.runners.lookup import find
from distrain.runners.runs import all_runs, launch
from distrain.tui import settings
from distrain.tui.app import DistrainApp

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.tui.realistic_runs import RealisticRun, freeze, gpus  # noqa: E402

FOLDER = ROOT / "docs" / "pictures"
SIZES = ((80, 24), (120, 36), (200, 60))
FAILING = """
from distrain.models.classification import Classification

class Unlucky(Classification):
    def loss(self, model, batch):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 40:
            raise ValueError("a label is out of range: 11 of 10 classes")
        return super().loss(model, batch)

def unlucky(model, data):
    return Unlucky(model, data)
"""
UNEVEN = """
import os
import time
from distrain.models.classification import Classification

class Uneven(Classification):
    def loss(self, model, batch):
        if os.environ["RANK"] == "1":
            time.sleep(0.02)
        return super().loss(model, batch)

def uneven(model, data):
    return Uneven(model, data)
"""
SCRIPT = """
import distrain
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(4096, 32)
data = TensorDataset(x, (x[:, :4] * x[:, 4:8]).argmax(1))
model = torch.nn.Sequential(torch.nn.Linear(32, 256), torch.nn.ReLU(), torch.nn.Linear(256, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(30):
    for inputs, labels in DataLoader(data, batch_size=64, shuffle=True):
        outputs = model(inputs)
        loss = cross_entropy(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        accuracy = (outputs.argmax(1) == labels).float().mean()
        distrain.log({"loss": loss, "accuracy": accuracy})
    print(f"epoch {epoch + 1}: loss {loss.item():.3f}", flush=True)
"""
LONGEST_S = 300.0
NAMES = {" ": "space", "=": "equals_sign", ">": "greater_than_sign", ":": "colon"}
# Picture, run or bench to open (none: the table), and the keys from there; "wait 3" waits
# for so many seconds, "until ✔" until the screen shows that.
SCREENS: Sequence[tuple[str, str, Sequence[str]]] = (
    ("runs", "", ()),
    ("filter", "", ("slash", *"strategy=ddp top1>0.9", "wait 1")),
    ("sweep", "", ("down", "down", "c", "wait 2")),
    ("queue", "", ("Q", "wait 2")),
    ("launch", "", ("n", "right", "down", "down")),
    ("verify", "", ("n", "wait 1", "v", "wait 1", "enter", "until ✔")),
    ("palette", "live", ("ctrl+p", *"zoom", "wait 1")),
    ("command", "", ("colon", *"run ddp --set train.l", "wait 2")),
    ("run", "live", ()),
    ("slow", "uneven", ()),
    ("script", "train", ()),
    ("cursor", "steady", ("w", *["left"] * 20)),
    ("logs", "broken", ("l",)),
    ("failed", "broken", ()),
    ("stop", "live", ("s", "until Stop&#160;live?")),
    ("compare", "", ("down", "down", "down", "space", "space", "c")),
    ("config", "steady", ("i",)),
    ("bench", "two ways", ()),
    ("help", "steady", ("question_mark",)),
)
SCREENS_OF_A_JOB = (("slurm", "far", ()),)
SCREENS_OF_A_GPU = (("gpu", "resnet50", ()), ("gpu-launch", "", ("n", "right", "down", "down")))


def runs_to_show(folder: Path, with_bench: bool) -> None:
    """Launch the runs and the bench of the table; one of them is still live, one waits for it."""
    (folder / "unlucky.py").write_text(FAILING)
    (folder / "uneven.py").write_text(UNEVEN)
    runs = folder / "runs"
    (folder / "train.py").write_text(SCRIPT)
    script = RunConfig.from_dict({"script": {"path": "train.py"}})
    launch(script, name="train", runs_dir=runs, command=["distrain", "run", "train.py"]).wait()
    base = {"train.epochs": 12, "report.window_s": 0.05}
    for name, preset, changes in (
        ("single", "single", {}),
        ("by hand", "allreduce", {}),
        ("half", "amp", {}),
        ("steady", "ddp", {"train.epochs": 30}),
        ("slower", "ddp", {"train.lr": 0.02}),
        ("broken", "ddp", {"task.name": "unlucky:unlucky"}),
        ("uneven", "ddp", {"task.name": "uneven:uneven"}),
    ):
        command = ["distrain", "run", preset, "--name", name]
        config = load_preset(preset, base | changes)
        launch(config, name=name, runs_dir=runs, command=command).wait()
    if with_bench:
        ways = make(candidates(["single", "ddp"], {}), {"repeats": 7, "seconds": 1.0})
        command = ["distrain", "bench", *ways.configs]
        start(ways, name="two ways", runs_dir=runs, command=command).wait()
    rates = {"train.lr": [0.2, 0.1, 0.05, 0.01]}
    for run in launch_sweep(load_preset("ddp", base), rates, name="rates", runs_dir=runs).runs:
        run.wait()
    long = {
        "train.epochs": 18_000,
        "train.lr": 0.003,
        "train.momentum": 0.0,
        "checkpoint.every_epochs": 100,
        "eval.every_epochs": 5,
    }
    command = ["distrain", "run", "ddp", "--name", "live"]
    live = launch(load_preset("ddp", base | long), name="live", runs_dir=runs, command=command)
    while not live.record.evaluations():
        time.sleep(0.5)
    launch(load_preset("amp", base), name="patient", runs_dir=runs, queue=True)
    live.record.set_meta(notes="does it go on improving?", tags=["digits", "long"])


def job_to_show(folder: Path) -> None:
    """Launch a run of four ranks on two nodes and wait some seconds."""
    far = {
        "train.epochs": 18_000,
        "report.window_s": 0.05,
        "checkpoint.every_epochs": 100,
        "eval.every_epochs": 5,
        "slurm.nodes": 2,
        "slurm.tasks_per_node": 2,
        "slurm.time": "5:00",
        "slurm.poll_s": 1.0,
    }
    command = ["distrain", "run", "slurm", "--name", "far"]
    live = launch(load_preset("slurm", far), name="far", runs_dir=folder / "runs", command=command)
    while len(live.record.evaluations()) < 5:
        time.sleep(0.5)


def training_on_a_gpu(folder: Path) -> None:
    """Launch a run on a GPU and wait until its curves have begun."""
    shape = {"shape": [3, 224, 224], "classes": 1000, "samples": 12_800, "eval_samples": 512}
    changes = {
        "devices": [0],
        "precision": "bf16",
        "model.name": "resnet50",
        "data.name": "synthetic",
        "data.args": {**shape, "on_device": True},
        "train.batch_size": 256,
        "train.channels_last": True,
        "train.epochs": 500,
        "report.sample_s": 0.5,
    }
    command = ["distrain", "run", "ddp", "--name", "resnet50"]
    config = load_preset("ddp", changes)
    live = launch(config, name="resnet50", runs_dir=folder / "runs", command=command)
    while len(live.record.evaluations()) < 3:
        if not live.is_live:
            raise SystemExit(live.reason)
        time.sleep(0.5)


def simulate(folder: Path) -> None:
    """Write the picture of a run on eight GPUs, at every size, without GPUs."""
    with pytest.MonkeyPatch.context() as patch:
        clock = freeze(patch)
        clock.now -= 40
        name, config = "resnet50 (simulated)", {"train.epochs": 40, "model.name": "resnet50"}
        run = RealisticRun(folder / "simulated", name, devices=gpus(8), **config)
        run.train(290).samples()
        clock.now += 40
        for size in SIZES:
            save("gpus", size, asyncio.run(take(folder / "simulated", run.id, (), size)))


async def seen(pilot: Pilot[None], text: str) -> None:
    """Wait until the screen shows a text."""
    deadline = time.monotonic() + LONGEST_S
    while text not in pilot.app.export_screenshot():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the screen never showed {text!r}")
        await pilot.pause(0.5)


async def take(runs_dir: Path, run: str, keys: Sequence[str], size: tuple[int, int]) -> str:
    """Return the screen after some keys as SVG."""
    settings.path().unlink(missing_ok=True)  # left by the previous picture
    app = DistrainApp(runs_dir, session=find(run, runs_dir) if run else None)
    async with app.run_test(size=size) as pilot:
        await pilot.pause(3)
        for key in keys:
            if key.startswith("wait "):
                await pilot.pause(float(key.removeprefix("wait ")))
                continue
            if key.startswith("until "):
                await seen(pilot, key.removeprefix("until "))
                continue
            await pilot.press(NAMES.get(key, key))
            await pilot.pause(0.15)
        await pilot.pause(1.5)
        if app.internal_errors:
            raise app.internal_errors[0]
        return app.export_screenshot(title="distrain")


def anywhere(picture: str) -> str:
    """Replace folders of this machine by names of the same length, which keeps columns aligned."""
    for place, name in ((ROOT, "~/distrain"), (sys.base_prefix, "/usr"), (Path.home(), "~")):
        picture = picture.replace(str(place), name.ljust(len(str(place)), "/"))
    return picture


def save(name: str, size: tuple[int, int], picture: str) -> None:
    width, height = size
    path = FOLDER / f"{name}-{width}x{height}.svg"
    path.write_text(anywhere(re.sub(r"terminal-\d+", "terminal", picture)))
    print(path)


def main(kind: str, only: Sequence[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    scratch = Path(tempfile.gettempdir(), "pictures")
    scratch.mkdir()  # a fixed name, because it is visible in pictures
    try:
        os.environ["DISTRAIN_CONFIG_DIR"] = f"{scratch}/config"
        os.chdir(scratch)
        if not kind and (not only or "gpus" in only):
            simulate(scratch)
        if [*only] == ["gpus"]:
            return
        try:
            screens = SCREENS
            if kind == "slurm":
                job_to_show(scratch)
                screens = SCREENS_OF_A_JOB
            elif kind == "gpu":
                training_on_a_gpu(scratch)
                screens = SCREENS_OF_A_GPU
            else:  # a bench takes long
                runs_to_show(scratch, with_bench=not only or bool({"bench", "runs"} & {*only}))
            for name, run, keys in screens:
                if not only or name in only:
                    for size in SIZES:
                        save(name, size, asyncio.run(take(scratch / "runs", run, keys, size)))
        finally:
            for run in all_runs(scratch / "runs"):
                if run.is_live:
                    run.stop(now=True)
                    run.wait()
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    has_kind = sys.argv[1:2] in (["slurm"], ["gpu"])
    main(sys.argv[1] if has_kind else "", sys.argv[2 if has_kind else 1 :])
