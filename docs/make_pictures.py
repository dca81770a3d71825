"""Make the pictures of the app in docs/pictures: `python docs/make_pictures.py`.

It trains a few small runs for real and takes every screen at three sizes, as SVG. Those of a job
are made by `python docs/make_pictures.py slurm`, where there are two nodes: see `make slurm`.
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

from distrain.runners.bench import candidates, make, start
from distrain.runners.config.presets import load_preset
from distrain.runners.config.schema import RunConfig
from distrain.runners.lookup import find
from distrain.runners.runs import Run, launch
from distrain.tui import settings
from distrain.tui.app import DistrainApp

ROOT = Path(__file__).resolve().parents[1]
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
# Picture, run or bench to open (none: the table), and the keys from there.
SCREENS: Sequence[tuple[str, str, Sequence[str]]] = (
    ("runs", "", ()),
    ("launch", "", ("n", "right", "down", "down")),
    ("run", "live", ()),
    ("script", "train", ()),
    ("cursor", "steady", ("w", *["left"] * 20)),
    ("logs", "broken", ("l",)),
    ("failed", "broken", ()),
    ("stop", "live", ("s",)),
    ("compare", "", ("down", "down", "down", "space", "space", "c")),
    ("config", "steady", ("i",)),
    ("bench", "two ways", ()),
    ("help", "steady", ("question_mark",)),
)
SCREENS_OF_A_JOB = (("slurm", "far", ()),)


def runs_to_show(folder: Path) -> Run:
    """Launch the runs and the bench of the table; return the run that is still live."""
    (folder / "unlucky.py").write_text(FAILING)
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
    ):
        command = ["distrain", "run", preset, "--name", name]
        config = load_preset(preset, base | changes)
        launch(config, name=name, runs_dir=runs, command=command).wait()
    ways = make(candidates(["single", "ddp"], {}), {"repeats": 7, "seconds": 1.0})
    start(ways, name="two ways", runs_dir=runs, command=["distrain", "bench", *ways.configs]).wait()
    long = {
        "train.epochs": 9000,
        "train.lr": 0.003,
        "train.momentum": 0.0,
        "checkpoint.every_epochs": 100,
        "eval.every_epochs": 5,
    }
    command = ["distrain", "run", "ddp", "--name", "live"]
    live = launch(load_preset("ddp", base | long), name="live", runs_dir=runs, command=command)
    while not live.record.evaluations():
        time.sleep(0.5)
    live.record.set_meta(notes="does it go on improving?", tags=["digits", "long"])
    return live


def job_to_show(folder: Path) -> Run:
    """Launch a run of four ranks on two nodes and wait some seconds."""
    far = {
        "train.epochs": 9000,
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
    return live


async def take(runs_dir: Path, run: str, keys: Sequence[str], size: tuple[int, int]) -> str:
    """Return the screen after some keys as SVG."""
    settings.path().unlink(missing_ok=True)  # left by the previous picture
    app = DistrainApp(runs_dir, session=find(run, runs_dir) if run else None)
    async with app.run_test(size=size) as pilot:
        await pilot.pause(3)
        for key in keys:
            await pilot.press(key)
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


def main(job: bool) -> None:
    FOLDER.mkdir(exist_ok=True)
    scratch = Path(tempfile.gettempdir(), "pictures")
    scratch.mkdir()  # a fixed name, because it is visible in pictures
    try:
        os.environ["DISTRAIN_CONFIG_DIR"] = f"{scratch}/config"
        os.chdir(scratch)
        live = (job_to_show if job else runs_to_show)(scratch)
        try:
            for name, run, keys in SCREENS_OF_A_JOB if job else SCREENS:
                for width, height in SIZES:
                    picture = asyncio.run(take(scratch / "runs", run, keys, (width, height)))
                    path = FOLDER / f"{name}-{width}x{height}.svg"
                    path.write_text(anywhere(re.sub(r"terminal-\d+", "terminal", picture)))
                    print(path)
        finally:
            live.stop(now=True)
            live.wait()
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main(job=sys.argv[1:] == ["slurm"])
