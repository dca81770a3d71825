"""Checkpoints are complete or absent, and hold the state of a rank's random generators."""

from __future__ import annotations

import errno
import random
import shutil
import signal
import subprocess
import sys
import zipfile
from collections import deque
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn

from distrain.runners.errors import ConfigError
from distrain.runners.training.checkpoint import (
    Checkpoints,
    load,
    load_training,
    restore_optimizer_state,
    why_unloadable,
    write,
)
from distrain.runners.training.random_state import get_random_state, set_random_state

CPU = torch.device("cpu")


def content(step: int) -> dict[str, Any]:
    return {"step": step, "model": {"weight": torch.full((1000,), float(step))}}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_saved_checkpoint_can_be_loaded(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path, keep=1).save(content(3), best=False)
    loaded = load(str(path))
    assert loaded["step"] == 3
    assert torch.equal(loaded["model"]["weight"], content(3)["model"]["weight"])


def test_a_full_disk_is_why_tensors_cannot_be_written() -> None:
    with (
        pytest.raises(OSError, match="No space left on device"),
        open("/dev/full", "wb", buffering=0) as file,
    ):
        write(file, content(3))


@pytest.mark.parametrize("place", [0.02, 0.3, 0.6, 0.9])
def test_a_damaged_checkpoint_is_named(place: float, tmp_path: Path) -> None:
    files = Checkpoints(tmp_path, keep=2)
    before = files.save(content(2), best=False)
    path = files.save(content(3), best=False)
    damaged = bytearray(path.read_bytes())
    weights = damaged.index(bytes(content(3)["model"]["weight"].numpy().tobytes()))
    damaged[weights + int(place * 4000)] ^= 1
    path.write_bytes(damaged)
    sentence = f"cannot be read as a checkpoint: it is damaged.* set this key to {before} to load"
    for name in (path.name, "last.pt"):
        with pytest.raises(ConfigError, match=f"{name} {sentence}"):
            load(str(path.with_name(name)))


def test_a_compressed_archive_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zipfile.ZipFile, "testzip", pytest.fail)
    path = tmp_path / "x.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/data.pkl", bytes(1 << 20))
    with pytest.raises(ConfigError, match=r"x\.pt cannot be read as a checkpoint"):
        load(str(path))


class Harm:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("executed"),)


def test_a_checkpoint_that_would_run_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"format": 1, "model": Harm()}, "harm.pt")
    with pytest.raises(ConfigError, match=r"harm\.pt cannot be read as a checkpoint"):
        load("harm.pt")
    assert not Path("executed").exists()


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (np.ones(2), "numpy"),
        (np.float64(1), "numpy"),
        ([deque([1])], "collections.deque"),
        (Path("a"), "pathlib"),
        (lambda: 0, "what cannot be saved"),
    ],
)
def test_state_that_could_not_be_loaded_again_is_refused(value: Any, found: str) -> None:
    model = nn.Linear(2, 1).state_dict() | {"_extra_state": value}
    problem = why_unloadable({"step": 1, "model": model})
    assert f"its model has {found}" in problem


def test_state_of_plain_types_is_not_refused(tmp_path: Path) -> None:
    model = nn.BatchNorm1d(2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 2)).sum().backward()
    optimizer.step()
    extra = {"_extra_state": [{1}, b"a", "a", 1.0, None, (True, torch.float32, torch.Size([1]))]}
    state = {"model": model.state_dict() | extra, "optimizer": optimizer.state_dict()}
    assert not why_unloadable(state)
    path = Checkpoints(tmp_path, keep=1).save({"step": 1, **state}, best=False)
    assert load(str(path))["model"]["_extra_state"] == extra["_extra_state"]


def test_a_checkpoint_that_lacks_fields_is_named(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path, keep=1).save(content(3), best=False)
    with pytest.raises(ConfigError, match=f"{path.name} is not a complete checkpoint: epoch, "):
        load_training(str(path))


def test_links_name_the_last_and_the_best(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    checkpoints = Checkpoints(folder, keep=5)
    for step, best in ((1, False), (2, True), (3, False)):
        checkpoints.save(content(step), best)
    assert load(str(folder / "last.pt"))["step"] == 3
    assert load(str(folder / "best.pt"))["step"] == 2


def test_restarted_ranks_continue_from_an_earlier_file_where_the_last_was_deleted(
    tmp_path: Path,
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=5)
    assert checkpoints.last is None
    paths = [str(checkpoints.save(content(step), best=False)) for step in (1, 2)]
    assert checkpoints.last == paths[1]
    Path(paths[1]).unlink()
    assert checkpoints.last == paths[0]


def test_no_checkpoint_is_written_where_the_folder_of_the_run_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrain.runners.training.checkpoint.FOLDER_S", 0.0)
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints", keep=1)
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError):
        checkpoints.save(content(1), best=False)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_moves_keeps_its_links(tmp_path: Path) -> None:
    Checkpoints(tmp_path / "a", keep=1).save(content(1), best=True)
    (tmp_path / "a").rename(tmp_path / "b")
    assert load(str(tmp_path / "b" / "best.pt"))["step"] == 1


def test_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in range(1, 7):
        checkpoints.save(content(step), best=step == 2)
    kept = [f"step-{step:08d}.pt" for step in (2, 5, 6)]
    assert names(tmp_path) == ["best.pt", "last.pt", *kept]


def test_a_copy_that_a_person_has_made_is_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(content(1), best=False)
    shutil.copy(tmp_path / "step-00000001.pt", tmp_path / "step-00000001-good.pt")
    checkpoints.save(content(2), best=False)
    assert names(tmp_path) == ["last.pt", "step-00000001-good.pt", "step-00000002.pt"]


def test_steps_of_nine_digits_are_newer_than_those_of_eight(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in range(99_999_998, 100_000_001):
        checkpoints.save(content(step), best=False)
    assert {load(str(path))["step"] for path in tmp_path.glob("step-*")} == {10**8 - 1, 10**8}


def test_a_new_best_replaces_the_old_one(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    for step in (1, 2, 3):
        checkpoints.save(content(step), best=True)
    assert names(tmp_path) == ["best.pt", "last.pt", "step-00000003.pt"]


@pytest.mark.parametrize("has_links", [True, False])
def test_a_later_process_keeps_the_best_of_the_previous_one(
    has_links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_links:  # as on exFAT
        monkeypatch.setattr(Path, "symlink_to", Mock(side_effect=PermissionError))
    before = Checkpoints(tmp_path, keep=1)
    before.save(content(1), best=True)
    before.save(content(2), best=False)
    after = Checkpoints(tmp_path, keep=1)
    after.save(content(3), best=False)
    assert load(str(tmp_path / "best.pt"))["step"] == 1
    after.save(content(4), best=True)
    assert names(tmp_path) == ["best.pt", "last.pt", "step-00000004.pt"]


def test_a_copy_that_fills_the_disk_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(source: Any, target: Any) -> None:
        target.write(source.read(10))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "symlink_to", Mock(side_effect=PermissionError))
    monkeypatch.setattr(shutil, "copyfileobj", copy)
    with pytest.raises(OSError, match="No space left on device"):
        Checkpoints(tmp_path, keep=1).save(content(1), best=False)
    assert names(tmp_path) == ["step-00000001.pt"]


def test_a_later_step_of_a_killed_process_is_deleted(tmp_path: Path) -> None:
    # given a checkpoint that was complete, but not yet the target of last.pt
    Checkpoints(tmp_path, keep=1).save(content(9), best=False)
    (tmp_path / "last.pt").unlink()
    # when ranks that resumed from an earlier checkpoint save an earlier step
    Checkpoints(tmp_path, keep=1).save(content(5), best=False)
    # then only that one remains
    assert load(str(tmp_path / "last.pt"))["step"] == 5
    assert names(tmp_path) == ["last.pt", "step-00000005.pt"]


# The call at which a second save is killed, and the step of last.pt afterwards.
MOMENTS = {
    "in the middle of writing": ("save", 1, 1),
    "before the file is on disk": ("fsync", 1, 1),
    "before it has its name": ("rename", 1, 1),
    "before it is the best": ("rename", 2, 1),
    "before it is the last": ("rename", 3, 1),
    "before the older one is deleted": ("unlink", 3, 2),
    "before the folder is on disk": ("fsync", 2, 2),
}

# Forks one child for each moment. Arguments: folder, function, number of the call that kills.
KILLED = """
import os, pathlib, signal, sys, torch
from distrain.runners.training.checkpoint import Checkpoints

def save(folder, step):
    content = {"step": step, "model": {"weight": torch.full((1000,), float(step))}}
    Checkpoints(folder, keep=1).save(content, best=True)

def kill_at(where, number):
    home = {"save": torch, "fsync": os, "rename": pathlib.Path, "unlink": pathlib.Path}[where]
    original, calls = getattr(home, where), []
    def kill_self(*args, **options):
        calls.append(args)
        if len(calls) == number:
            if where == "save":
                args[1].write(b"half of a che")
                args[1].flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **options)
    setattr(home, where, kill_self)

for folder, where, number in zip(*[iter(sys.argv[1:])] * 3):
    save(pathlib.Path(folder), 1)
    child = os.fork()
    if not child:
        kill_at(where, int(number))
        save(pathlib.Path(folder), 2)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with a checkpoint of step 1, whose process was killed while it saved step 2."""
    folders = {moment: tmp_path_factory.mktemp("run") / "checkpoints" for moment in MOMENTS}
    arguments = [
        str(word) for moment, folder in folders.items() for word in (folder, *MOMENTS[moment][:2])
    ]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(-signal.SIGKILL)] * len(MOMENTS)
    return folders


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_during_saving_leaves_a_complete_checkpoint(
    moment: str, killed: dict[str, Path]
) -> None:
    folder = killed[moment]
    assert load(str(folder / "last.pt"))["step"] == MOMENTS[moment][2]
    # then every file with the name of a checkpoint is complete
    for path in folder.glob("*.pt"):
        found = load(str(path))
        assert torch.equal(found["model"]["weight"], content(found["step"])["model"]["weight"])
    # and the next save works in spite of the leftovers, and deletes them
    Checkpoints(folder, keep=1).save(content(2), best=True)
    assert load(str(folder / "last.pt"))["step"] == load(str(folder / "best.pt"))["step"] == 2
    assert names(folder) == ["best.pt", "last.pt", "step-00000002.pt"]


def draws() -> list[float]:
    return [random.gauss(0, 1), np.random.normal(), torch.randn(()).item(), random.random()]


def test_random_numbers_continue_where_the_checkpoint_was_made(tmp_path: Path) -> None:
    # given generators in the middle of their sequences (a Gaussian pair half used)
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    draws()
    # when their state goes through a file
    saved = {"step": 1, "random": get_random_state(CPU)}
    path = Checkpoints(tmp_path, keep=1).save(saved, best=False)
    expected = [draws() for _ in range(3)]
    set_random_state(load(str(path))["random"], CPU)
    # then the numbers after it are repeated
    assert [draws() for _ in range(3)] == expected


def test_steps_of_fused_kernels_are_where_the_parameter_is() -> None:
    before = nn.Parameter(torch.ones(1))
    before.grad = torch.ones(1)
    saved = torch.optim.Adam([before])
    saved.step()
    parameter = nn.Parameter(torch.ones(1, device="meta"))
    optimizer = torch.optim.Adam([parameter])
    optimizer.param_groups[0]["fused"] = True
    restore_optimizer_state(optimizer, saved.state_dict())
    assert optimizer.state[parameter]["step"].device.type == "meta"
