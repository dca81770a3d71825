"""Given a script with a mistake that no rank sees alone, when it runs, then a notice names it."""

from __future__ import annotations

from pathlib import Path

from distrain.runners.protocol.events import Notice
from tests.integration.cli.conftest import Distrain

from .conftest import Write, only_run

TRAINS = """
    import os
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    data = TensorDataset(torch.arange(128.0).reshape(-1, 1), torch.ones(128, 1))
    model = torch.nn.Linear(1, 1)
    sampler = None
    {prepare}
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for x, y in DataLoader(data, batch_size=4):  # statistics, of all samples on every rank
        x.mean()
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    {save}
    if dist.is_initialized():
        dist.destroy_process_group()
"""
GROUP = 'dist.init_process_group("gloo"); sampler = DistributedSampler(data)'
DDP = f"{GROUP}; model = torch.nn.parallel.DistributedDataParallel(model)"
SAVE = 'torch.save(model.state_dict(), "model.pt")'


def notices(distrain: Distrain, runs_dir: Path, *words: str) -> list[str]:
    """Return the notices of a script that completes."""
    done = distrain("run", *words, "train.py", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    events = only_run(runs_dir).events(kinds=("notice",))
    return [event.text for _, event in events if isinstance(event, Notice)]


def test_independent_processes_with_the_same_samples_and_file_are_named(
    write: Write, distrain: Distrain, runs_dir: Path, tmp_path: Path
) -> None:
    write("train.py", TRAINS.format(prepare="", save=SAVE))
    found = notices(distrain, runs_dir, "--devices", "cpu:2")
    assert [text.split(":")[0] for text in found] == [
        "2 independent processes",
        "all ranks read the same samples",
        f"ranks 0–1 write the same file, {tmp_path / 'model.pt'}",
    ]
    assert found[0] in " ".join(distrain("show", "latest").stdout.split())


def test_a_process_group_that_is_never_used_is_named(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    save = 'torch.save(model.state_dict(), f"{dist.get_rank()}.pt")'
    write("train.py", TRAINS.format(prepare=GROUP, save=save))
    (found,) = notices(distrain, runs_dir, "--devices", "cpu:2")
    assert found.startswith("the process group was not used in the first 16 steps")


def test_nothing_is_said_of_a_proper_script(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    save = f"if dist.get_rank() == 0: {SAVE}"
    write("train.py", TRAINS.format(prepare=DDP, save=save))
    assert notices(distrain, runs_dir, "--devices", "cpu:2") == []


def test_a_program_that_makes_an_optimizer_and_no_step_is_named(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", "import torch\ntorch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=1.0)\n")
    assert notices(distrain, runs_dir) == ["the program has ended without an optimizer step"]


def test_a_rank_that_leaves_without_its_exit_handlers_is_named(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    leaves = """
        import os, time
        import distrain
        for _ in range(20):
            distrain.step(samples=1)
            time.sleep(0.02)
        os._exit(0)
    """
    write("train.py", leaves)
    (found,) = notices(distrain, runs_dir)
    assert found.startswith("ended without the exit handlers of Python, as after os._exit()")
