"""Given the usual programs in their usual form, when they run, then what is known is exact."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Distrain

from .conftest import Write, log_of, only_run, summary

TWO = ("--devices", "cpu:2")
AT_ONCE = ("--set", "report.window_s=1e-9")  # every step is reported

MODELS = """
    from torch import nn

    def make():
        return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
"""
UTILS = """
    import torch
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    def make_loader():
        data = TensorDataset(torch.randn(200, 8), torch.randn(200, 1))
        return DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
"""

# Each rank has 100 samples of an epoch: 12 batches of 8 and one of 4.
SHARDED = """
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from models.net import make
    from utils import make_loader

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = make()
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
    loader = make_loader()
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    dist.destroy_process_group()
"""

# In its seventh step rank 1 fails, or waits for something that never comes.
FAILS = """
    import datetime, os, sys, time
    import distrain
    import torch
    import torch.distributed as dist
    from models.net import make
    from utils import make_loader

    distrain.init(config={"precision": "bf16"})
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
    model = torch.nn.parallel.DistributedDataParallel(make())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for number, (x, y) in enumerate(distrain.track(make_loader()), 1):
        with torch.autocast("cpu", torch.bfloat16):
            loss = torch.nn.functional.mse_loss(model(x).float(), y)
        if number == 7 and os.environ["RANK"] == "1":
            time.sleep(600 * ("hangs" in sys.argv))
            raise ValueError("a bad batch")
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        distrain.log({"loss": loss})
"""

# All steps are made in processes that it starts; the last one fails.
STARTS_PROCESSES = """
    import torch
    from torch import multiprocessing as mp

    def train(rank, steps=7):
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(steps):
            if step == 6:
                raise ValueError("a mistake in a child")
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()
        print("rank", rank, "has trained", flush=True)

    if __name__ == "__main__":
        child = mp.get_context("fork").Process(target=train, args=(0, 6))
        child.start()
        child.join()
        mp.spawn(train, nprocs=1)
"""


@pytest.fixture(autouse=True)
def modules(write: Write) -> None:
    write("models/net.py", MODELS)
    write("utils.py", UTILS)


def test_fully_sharded_training_is_observed(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", SHARDED)
    found = summary(distrain, *TWO, "train.py")
    assert (found["status"], found["steps"], found["samples"]) == ("completed", 26, 400)
    assert found["sources"]["steps"] == "optimizer steps of AdamW"
    record = only_run(runs_dir)
    assert {rank: window.lr for rank, window in record.latest().items()} == {0: 0.25, 1: 0.25}


@pytest.mark.parametrize(
    ("words", "kind", "sentence"),
    [
        ((), "ValueError", "rank 1 failed after step 6: ValueError: a bad batch"),
        (("hangs",), "Hang", "last seen: rank 0 at step 6, rank 1 at step 6"),
    ],
)
def test_a_rank_that_fails_or_hangs_is_named_with_its_step(
    words: tuple[str, ...],
    kind: str,
    sentence: str,
    write: Write,
    distrain: Distrain,
    runs_dir: Path,
) -> None:
    write("train.py", FAILS)
    failed = distrain("run", *AT_ONCE, *TWO, "train.py", *words)
    assert failed.returncode == 1
    assert sentence in failed.stderr
    record = only_run(runs_dir)
    error = record.state.error
    assert error is not None
    assert (error.rank, error.type, error.step, error.secondary) == (1, kind, 6, [0])
    steps = {rank: window.step for rank, window in record.latest().items()}
    assert steps == {0: 6, 1: 6}
    assert record.script_settings().config == {"precision": "bf16"}


def test_steps_of_processes_that_the_program_starts_are_unknown(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", STARTS_PROCESSES)
    failed = distrain("run", "--json", "train.py")
    found = json.loads(failed.stdout)
    assert (found["status"], found["steps"], found["samples"]) == ("failed", None, None)
    why = "no optimizer of torch has stepped in the thread that is observed"
    assert found["sources"]["steps"] == why
    assert log_of(only_run(runs_dir)).startswith("rank 0 has trained\n")
    assert "ValueError: a mistake in a child" in failed.stderr


def test_a_program_that_asks_in_the_terminal_fails_at_once(
    write: Write, environment: dict[str, str], tmp_path: Path
) -> None:
    """Its standard input is empty, whatever that of distrain is."""
    write("train.py", "import sys\nprint(sys.stdin.isatty())\ninput('Continue? ')\n")
    terminal, program_side = os.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "distrain", "run", "train.py"],
        env=environment,
        cwd=tmp_path,
        stdin=program_side,
        capture_output=True,
        text=True,
        timeout=60,
    )
    os.close(terminal)
    os.close(program_side)
    assert done.returncode == 1
    assert "False\n" in done.stdout + done.stderr
    assert "rank 0 failed: EOFError: EOF when reading a line" in done.stderr
    assert "input('Continue? ')" in done.stdout


def test_a_pause_is_noticed_and_no_failure(write: Write, distrain: Distrain) -> None:
    write(
        "train.py",
        """
        import time
        import distrain
        for step in range(40):
            if step == 30:
                time.sleep(3)
            distrain.step()
        """,
    )
    done = distrain("run", *AT_ONCE, "--set", "report.stall_s=0.5", "train.py")
    assert done.returncode == 0
    assert "s: rank 0 is in other code (train.py:5 in <module>)" in done.stdout + done.stderr
    assert "40 steps" in done.stdout + done.stderr


def test_no_line_of_ten_thousand_a_second_is_lost(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write(
        "train.py",
        """
        import time
        import distrain
        begin = time.perf_counter()
        for step in range(20):
            for line in range(1000):
                print("step", step, "line", line)
            distrain.step(samples=2)
            time.sleep(max(0, begin + (step + 1) / 10 - time.perf_counter()))
        """,
    )
    lines = [f"step {step} line {line}" for step in range(20) for line in range(1000)]
    done = distrain("run", "train.py")
    record = only_run(runs_dir)
    assert record.summary()["steps"] == 20
    assert record.summary()["samples"] == 40
    assert log_of(record).splitlines() == lines
    assert [line for line in done.stdout.splitlines() if line.startswith("step")] == lines
