"""The checks of a task change nothing of the run, and end one that would train wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from distrain.models.errors import TaskError
from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.distributed.process_group import World
from distrain.runners.errors import ConfigError
from distrain.runners.protocol.events import Notice
from distrain.runners.protocol.reporter import NullReporter
from distrain.runners.system.devices import Device
from distrain.runners.training import loop
from distrain.runners.training.task_check import _check_evaluation
from distrain.runners.training.trainer import make_training
from tests.integration.engine.ranks import run_alone
from tests.support.reporters import RecordingReporter


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")  # of torch 2.14
@pytest.mark.parametrize("task", ["Restless", "Remembering", "Scripted", "Finishing", "Scored"])
def test_a_run_is_the_same_to_the_bit_with_the_check_and_without(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {
        "strategy": "single",
        "launcher": "inline",
        "devices": "cpu:1",
        "train.epochs": 2,
        "train.threads": 1,
        "data.train_limit": 512,
        "eval.batch_size": 64,
        "report.window_s": 60,  # so windows do not depend on the speed of the machine
        "task.name": f"tests.integration.engine.tasks:{task}",
    }
    config = RunConfig().with_changes(changes)
    checked = run_alone(config, tmp_path / "checked")
    monkeypatch.setattr(loop, "check_task", lambda run: None)
    plain = run_alone(config, tmp_path / "plain")
    assert checked.model.keys() == plain.model.keys()
    for name, tensor in plain.model.items():
        assert torch.equal(checked.model[name], tensor), name
    values = [[each.metrics for each in outcome.evaluations] for outcome in (checked, plain)]
    assert values[0] == values[1]
    assert [each.loss_sum for each in checked.windows] == [each.loss_sum for each in plain.windows]


def test_ranks_agree_on_metrics_that_the_samples_of_one_cannot_compute(tmp_path: Path) -> None:
    config = RunConfig().with_changes({"task.name": f"{TASKS}:Scored", "strategy": "single"})
    cpu = Device(kind="cpu", index=0)
    world = World(0, 0, 1, torch.device("cpu"))
    run = make_training(config, plan_here(config, [cpu]), world, NullReporter(), tmp_path)
    labels = run.task.eval.labels.tolist()
    with_zero = labels.index(0)
    without = next(index for index, label in enumerate(labels) if label)
    found, missing = (_check_evaluation(run, [index]) for index in (with_zero, without))
    assert found == missing


TASKS = "tests.integration.engine.tasks"
LATER: dict[str, tuple[dict[str, Any], str]] = {
    "not held": ({"task.args": {"held": False}}, r"1\.bias .* became trainable in step 3, .* not"),
    "not reduced": ({"strategy": f"{TASKS}:OfFixedParameters"}, "trainable at its start: use all"),
    "added": ({"task.name": f"{TASKS}:Growing"}, r"more\.weight was added to the model"),
}


def thawing(**changes: Any) -> RunConfig:
    base = {"task.name": f"{TASKS}:Thawing", "strategy": "single", "launcher": "inline"}
    limits = {"devices": "cpu:1", "train.max_steps": 4, "checkpoint.keep": 0}
    return RunConfig().with_changes({**base, **limits, **changes})


@pytest.mark.parametrize("name", LATER)
def test_a_parameter_that_would_never_be_trained_ends_the_run(name: str, tmp_path: Path) -> None:
    changes, sentence = LATER[name]
    with pytest.raises(TaskError, match=sentence):
        run_alone(thawing(**changes), tmp_path)


def test_a_parameter_that_becomes_trainable_late_is_trained(tmp_path: Path) -> None:
    weights = [
        run_alone(thawing(**{"train.max_steps": steps}), tmp_path).model["1.bias"]
        for steps in (1, 2, 3)
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])


def test_a_metric_that_fails_with_few_samples_is_named_and_one_that_must_fail_is_refused(
    tmp_path: Path,
) -> None:
    limits = {"train.max_steps": 2, "checkpoint.keep": 0, "data.eval_limit": 150}
    config = thawing(**{"task.name": f"{TASKS}:Percentile", "train.batch_size": 32, **limits})
    reporter = RecordingReporter()
    outcome = run_alone(config, tmp_path, reporter)
    assert outcome.evaluations[-1].metrics["percentile"].value is not None
    (notice,) = reporter.events_of(Notice)
    assert "of the metric percentile, failed with the first few samples" in notice.text
    assert "IndexError: list index out of range" in notice.text
    with pytest.raises(
        TaskError, match=r"compute\(\) in .*, of the metric percentile, failed: Name"
    ):
        run_alone(config.with_changes({"task.args": {"is_wrong": True}}), tmp_path)


@pytest.mark.parametrize("part", ["object", "fields", "sparse buffer"])
def test_a_task_that_is_unusual_and_right_is_trained(part: str, tmp_path: Path) -> None:
    outcome = run_alone(
        thawing(**{"task.name": f"{TASKS}:Unusual", "task.args": {"part": part}}), tmp_path
    )
    assert outcome.evaluations


def test_a_sparse_buffer_is_refused_where_ranks_would_copy_it(tmp_path: Path) -> None:
    task = {"task.name": f"{TASKS}:Unusual", "task.args": {"part": "sparse buffer"}}
    config = thawing(**task, strategy="allreduce", launcher="spawn", devices="cpu:2")
    cpus = [Device(kind="cpu", index=index) for index in range(2)]
    world = World(0, 0, 2, torch.device("cpu"))
    with pytest.raises(ConfigError, match="the buffer selection is sparse, and cannot be copied"):
        make_training(config, plan_here(config, cpus), world, NullReporter(), tmp_path)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("parameter_groups", r"must return parameters as \"params\", not a tuple"),
        ("collate", r"must return a batch, but it returned None"),
        (
            "first sample",
            r"must return a batch of all samples: of \d+ samples it returned the same",
        ),
        ("derived", r"failed: KeyError: 'los'; the means are loss, top1, top5"),
    ],
)
def test_a_slip_in_a_method_is_named_with_its_place(
    name: str, sentence: str, tmp_path: Path
) -> None:
    config = thawing(**{"task.name": f"{TASKS}:Slipping", "task.args": {"method": name}})
    with pytest.raises(TaskError, match=rf"a lambda in .*tasks.py, line \d+ {sentence}"):
        run_alone(config, tmp_path)


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("metrics", r"_shrink\(\) in .* must not change the weights"),
        ("reduced metrics", r"_reduce\(\) in .* must not call all_reduce\(\)"),
        ("loss", r"_go_backward\(\) in .* must not call backward\(\)"),
    ],
)
def test_a_method_that_does_the_work_of_the_run_ends_it(
    method: str, sentence: str, tmp_path: Path
) -> None:
    config = thawing(**{"task.name": f"{TASKS}:Slipping", "task.args": {"method": method}})
    with pytest.raises(TaskError, match=sentence):
        run_alone(config, tmp_path)
