"""Given real Horovod: it trains, evaluates, resumes and is verified like any other strategy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distrain import Run
from distrain.runners.horovod.presence import presence
from distrain.runners.verification.cases import verify

Start = Callable[..., Run]
ALL_TYPES = "tests.cluster.horovod.models:all_types"
SCALED = "tests.support.optimizers:Scaled"
SCORED = "tests.integration.engine.tasks:Scored"
MOMENTUM = {"train.momentum": 0.9, "train.weight_decay": 0.01}
ADAM = {"train.optimizer": "adam", "train.clip_norm": 0.1}
QUICK = {"train.threads": 1}


@pytest.mark.parametrize(
    ("preset", "ranks"), [("horovod", 1), ("horovod", 3), ("horovod-fp16", 3), ("horovod-amp", 3)]
)
def test_horovod_presets_compute_what_one_process_computes(preset: str, ranks: int) -> None:
    """With two ranks `test_horovod_computes_the_same_with_other_options`."""
    (report,) = verify([preset], changes=QUICK, ranks=[ranks])
    assert report.passed, report.first or report.problem


@pytest.mark.parametrize(
    "changes",
    [
        {"model.name": ALL_TYPES, **MOMENTUM, "train.clip_norm": 0.1},
        {"train.ema": 0.9, "task.name": SCORED, **ADAM, "train.accumulate": 2},
        {"train.optimizer": "adamw", "precision": "fp16"},  # overflows at step 6 before averaging
        {"precision": "fp16", "train.accumulate": 3, "train.clip_norm": 0.1},
        {"horovod.compression": "fp16", "train.accumulate": 2},
        {"model.name": "resnet18", "data.args": {"channels": 3}},
        {"model.args": {"dropout": 0.3}},
        {"model.name": "tests.integration.engine.tasks:routed", "train.weight_decay": 0.1},
        {"train.optimizer": SCALED, "train.optimizer_args": {"factor": 0.5}},
        {"task.name": "tests.integration.engine.streams:regression", "train.max_steps": 20},
    ],
    ids=lambda changes: " ".join(changes),
)
def test_horovod_computes_the_same_with_other_options(changes: dict[str, Any]) -> None:
    (report,) = verify(["horovod"], changes={**QUICK, **changes}, ranks=[2], steps=6)
    assert report.passed, report.first or report.problem


@pytest.mark.parametrize(
    "optimizer",
    [
        {"train__optimizer": "sgd", "train__momentum": 0.0, "train__weight_decay": 0.5},
        {"train__optimizer": "adam"},
    ],
    ids=["sgd without a state", "adam"],
)
def test_a_resumed_run_ends_like_an_uninterrupted_one(
    optimizer: dict[str, Any], started: Start
) -> None:
    same = {"task__name": "classification", **optimizer, "train__lr": 0.01}
    whole = started(**same, train__epochs=4)
    begun = started(**same, train__epochs=2)
    whole.wait(120)
    begun.wait(120)
    again = begun.resume({"train.epochs": 4})
    assert again.wait(120)["status"] == "completed"
    first, second = (run.record.evaluations()[-1] for run in (whole, again))
    assert first.metrics == second.metrics


def test_rank_0_may_save_longer_than_the_timeout_of_a_collective(
    started: Start, user_folder: Path
) -> None:
    (user_folder / "slowly.py").write_text(SLOWLY)
    run = started(task__name="slowly:make", train__epochs=1, dist__timeout_s=3)
    assert run.wait(120)["status"] == "completed"


SLOWLY = """
import time
import torch
from distrain.models.classification import Classification

save = torch.save

def slowly(content, file, *given, **more):
    if hasattr(file, "name"):  # also saved in memory, to check it
        time.sleep(8)
    save(content, file, *given, **more)

def make(model, data):
    torch.save = slowly
    return Classification(model, data)
"""


def test_the_horovod_timeline_is_in_the_record(started: Start) -> None:
    run = started(train__epochs=1, horovod__timeline=True)
    run.wait(120)
    text = (run.record.dir / "horovod-timeline.json").read_text()
    events = json.loads(text.rstrip().rstrip(",").removesuffix("]") + "]")
    assert any(event.get("name") == "ALLREDUCE" for event in events)
    notices = [event.text for event in run.events() if type(event).__name__ == "Notice"]
    assert any("horovod-timeline.json" in notice for notice in notices)


def test_waiting_for_the_gradients_of_a_slow_rank_is_communication(
    started: Start, user_folder: Path
) -> None:
    (user_folder / "late.py").write_text(LATE)
    run = started(model__name="late:make", task__name="classification", train__epochs=3)
    run.wait(120)
    punctual, late = (run.record.latest()[rank] for rank in range(2))
    assert punctual.comm > 0.04 * punctual.steps > late.comm
    assert late.backward > 0.04 * late.steps > punctual.backward


LATE = """
import os, time
from torch import nn

def make(**_):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    if os.environ["RANK"] == "1":
        model[1].register_full_backward_pre_hook(lambda *_: time.sleep(0.05))
    return model
"""


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("layers.to(torch.bfloat16)", "of torch.bfloat16; keep it in float32"),
        ("nn.Conv2d(3, 2, 3).to(memory_format=torch.channels_last)", "not contiguous"),
    ],
)
def test_parameters_that_horovod_cannot_reduce_are_refused(
    made: str, why: str, started: Start, user_folder: Path
) -> None:
    (user_folder / "refused.py").write_text(REFUSED.format(made=made))
    run = started(model__name="refused:make", task__name="classification")
    run.wait(120)
    error = run.record.state.error
    assert error is not None
    assert error.usage
    assert why in error.message


REFUSED = """
import torch
from torch import nn

def make(**_):
    layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    return {made}
"""


@pytest.mark.parametrize("via", ["horovodrun", "mpirun"])
def test_other_launch_commands_start_the_ranks_as_well(via: str, started: Start) -> None:
    if via == "mpirun" and not presence().mpi:
        pytest.skip("this Horovod is built without MPI")
    run = started(horovod__via=via, train__epochs=2)
    summary = run.wait(120)
    assert summary["status"] == "completed", run.record.state.reason
    assert len(run.record.ranks()) == 2
