"""Training with a stream: the same for any number of ranks and loader processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from distrain.models.errors import TaskError
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError
from tests.integration.engine.ranks import Outcome, run_alone, run_on_ranks

# Python 3.12 warns where a process with threads forks; loader processes take it into account.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

STEPS = 12  # of 16 samples, of which a pass has 50: passes end within steps
TASKS = "tests.integration.engine.streams"
BASE = RunConfig().with_changes(
    {
        "launcher": "spawn",
        "devices": "cpu:2",
        "task.name": f"{TASKS}:regression",
        "train.max_steps": STEPS,
        "train.batch_size": 16,
        "train.lr": 0.1,
        "train.threads": 1,
    }
)
ALONE = {"strategy": "single", "launcher": "inline", "devices": "cpu:1"}


def assert_equal(outcome: Outcome, other: Outcome, tolerance: float) -> None:
    assert outcome.model.keys() == other.model.keys()
    for name, tensor in other.model.items():
        difference = float((outcome.model[name] - tensor).abs().max())
        assert difference <= tolerance, (name, difference)


def test_ranks_and_loader_processes_change_nothing_and_runs_resume(tmp_path: Path) -> None:
    alone = run_alone(BASE.with_changes(ALONE), tmp_path / "alone")
    first = tmp_path / "first"
    resumed = {"checkpoint.load": f"{first}/checkpoints/last.pt", "data.workers": 0}
    cases = [
        (BASE, tmp_path / "straight"),
        (BASE.with_changes({"data.workers": 4, "train.accumulate": 2}), tmp_path / "workers"),
        (BASE.with_changes({"data.workers": 2, "train.max_steps": 5}), first),
        (BASE.with_changes(resumed), tmp_path / "second"),
        (BASE.with_changes({"strategy": "allreduce"}), tmp_path / "allreduce"),
    ]
    straight, workers, _, second, allreduce = run_on_ranks(2, cases)
    assert_equal(straight[0], alone, 1e-6)
    assert_equal(workers[0], alone, 1e-6)
    assert_equal(allreduce[0], alone, 1e-6)
    assert_equal(second[0], straight[0], 0.0)
    assert sum(each.steps for each in straight[0].windows) == STEPS
    assert all(torch.isfinite(tensor).all() for tensor in alone.model.values())


@pytest.mark.parametrize(
    ("kind", "workers", "sentence"),
    [
        ("empty", 0, "of class Empty, end at once, without a sample"),
        ("unseeded", 0, "of class Unseeded, begin with other samples each time: __iter__ must"),
        ("falling", 0, "of class Falling, have no samples in pass 2: each call of __iter__ must"),
        ("falling", 2, "of class Falling, have no samples in pass 2: each call of __iter__ must"),
    ],
)
def test_a_mistake_in_a_stream_is_one_sentence(
    kind: str, workers: int, sentence: str, tmp_path: Path
) -> None:
    changes = {"task.name": f"{TASKS}:wrong", "task.args": {"kind": kind}, "data.workers": workers}
    with pytest.raises(TaskError, match=sentence):
        run_alone(BASE.with_changes({**ALONE, **changes}), tmp_path)


def test_a_stream_that_divides_itself_by_rank_is_refused(tmp_path: Path) -> None:
    changes = {"task.name": f"{TASKS}:wrong", "task.args": {"kind": "by rank"}}
    with pytest.raises(Exception, match="begin with other samples on other ranks"):
        run_on_ranks(2, [(BASE.with_changes(changes), tmp_path)])


def test_a_run_without_max_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.max_steps: the training data are a stream"):
        run_alone(BASE.with_changes({**ALONE, "train.max_steps": None}), tmp_path)
