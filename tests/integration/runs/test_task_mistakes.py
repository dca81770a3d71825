"""A mistake in a user's task ends the run before the first step, or in it, with one sentence that
names the place.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distrain import Run, RunConfig
from distrain.models.errors import TaskError
from distrain.runners.errors import ConfigError
from distrain.runners.protocol.events import Window
from tests.integration.engine.ranks import run_alone
from tests.support.reporters import RecordingReporter

Start = Callable[..., Run]
ALONE: dict[str, Any] = {"strategy": "single", "launcher": "inline", "devices": "cpu:1"}


@pytest.fixture
def start_mistaken(start: Start, user_folder: Path) -> Start:
    shutil.copy(Path(__file__).with_name("mistaken.py"), user_folder)
    common = {"task__name": "mistaken:make", "report__window_s": 1e-3, "train__epochs": 1}

    def start_one(kind: str, **changes: Any) -> Run:
        return start(task__args={"kind": kind}, **(common | changes))

    return start_one


def failure_of(run: Run) -> str:
    """Return the sentence of a run that must have failed without a traceback."""
    assert run.wait(120)["status"] == "failed"
    error = run.record.state.error
    assert error is not None
    assert not error.traceback, error.traceback
    assert run.record.state.reason.endswith(error.message)
    return error.message


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("bare mean", "metrics() in mistaken.py, line 59 must return {name: (sum over the batch, "),
        ("hidden mean", "loss of metrics() in mistaken.py, line 59 is a mean: return the sum"),
        ("vector sum", "the sum of loss must be a number, but metrics() in mistaken.py, line 59"),
        ("tuple", "line 59 must return {name: (sum over the batch, count)}, but it returned a"),
        ("fraction", "the count of loss must be a whole number, but metrics() in mistaken.py"),
        ("vector", "loss() in mistaken.py, line 52 must return the mean over the samples, a"),
        ("detached", "loss of loss() in mistaken.py, line 52 has no gradient"),
        ("frozen", "model.name: no parameter of the model requires a gradient"),
        ("counted", "a checkpoint could not be loaded again: its model has numpy"),
        ("foreign", "configure_optimizers() in mistaken.py, line 82 would never be called"),
    ],
)
def test_a_mistake_ends_the_training_before_the_first_step(
    kind: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: what a run makes of such an error is the same for all of them."""
    monkeypatch.chdir(Path(__file__).parent)
    monkeypatch.syspath_prepend(Path(__file__).parent)
    changes = {**ALONE, "task.name": "mistaken:make", "task.args": {"kind": kind}}
    reporter = RecordingReporter()
    with pytest.raises((ConfigError, TaskError)) as raised:
        run_alone(RunConfig().with_changes(changes), tmp_path, reporter)
    assert sentence in str(raised.value)
    assert reporter.events_of(Window) == []


def test_a_metric_that_does_not_exist_cannot_select_the_best(start_mistaken: Start) -> None:
    run = start_mistaken("", **ALONE, checkpoint__best="accuracy", checkpoint__best_is="max")
    assert "checkpoint.best: there is no metric 'accuracy'; the task has loss" in failure_of(run)
    assert run.record.summary()["steps"] == 0


def test_numbers_are_sums_too_and_a_slip_in_a_name_is_reported(start_mistaken: Start) -> None:
    numbers = start_mistaken("numbers", **ALONE)
    misspelt = start_mistaken("misspelt", **ALONE)
    assert numbers.wait(120)["status"] == "completed"
    metrics = numbers.record.evaluations()[-1].metrics
    assert (metrics["loss"].count, metrics["zero"].total) == (64, 0)
    assert misspelt.wait(120)["status"] == "completed"
    facts = misspelt.record.state.facts
    assert facts is not None
    assert [notice for notice in facts.notices if "is it metrics()?" in notice]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("self", "loss() in mistaken.py, line 52 must call the `model` that it is given"),
        ("unused", "ddp.find_unused_parameters: the loss does not use 2 parameters (unused.weight"),
        ("ranked", "metrics() in mistaken.py, line 59 returned other names on other ranks than "),
        ("lambda", "eval.options['scale'] of the task is a lambda in mistaken.py, line 35"),
    ],
)
def test_what_only_ranks_or_loader_processes_reveal(
    kind: str, sentence: str, start_mistaken: Start
) -> None:
    loaders = {**ALONE, "data__workers": 1, "data__worker_context": "spawn"}
    run = start_mistaken(kind, **loaders if kind == "lambda" else {})
    assert sentence in failure_of(run)
    assert run.record.summary()["steps"] <= 1


def test_a_loss_may_call_forward_itself(start_mistaken: Start) -> None:
    assert start_mistaken("forward").wait(120)["status"] == "completed"


def test_parameters_that_are_not_used_are_found_if_ddp_shall_search(start_mistaken: Start) -> None:
    run = start_mistaken("unused", ddp__find_unused_parameters=True)
    assert run.wait(120)["status"] == "completed"
