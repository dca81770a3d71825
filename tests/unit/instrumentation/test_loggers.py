"""Given libraries that log values, in the form in which distrain finds them, what is recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest

from distrain.runners.instrumentation.automatic import hooked, loggers
from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.protocol.events import Event, Logged
from distrain.runners.protocol.reporter import NullReporter


class Sent(NullReporter):
    def __init__(self) -> None:
        self.values: dict[str, float | None] = {}
        self.steps: list[int] = []

    def send(self, event: Event) -> None:
        if isinstance(event, Logged):
            self.steps.append(event.step)
            self.values |= {name: stats.total for name, stats in event.values.items()}


@pytest.fixture
def sent() -> Iterator[Sent]:
    sent = Sent()
    hooked.begin(RankSession(sent, 0, window_s=0.0))
    yield sent
    hooked.end()


def library(name: str, monkeypatch: pytest.MonkeyPatch, **contents: Any) -> Any:
    module = ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)
    return module


class Writer:
    def __init__(self, log_dir: str) -> None:
        self.log_dir = log_dir

    def add_scalar(self, tag: str, scalar_value: float, global_step: float) -> None:
        pass


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> type[Writer]:
    """Return TensorBoard's class, whose calls are observed."""
    found = type("SummaryWriter", (Writer,), {"add_scalar": Writer.add_scalar})
    module = library("torch.utils.tensorboard.writer", monkeypatch, SummaryWriter=found)
    loggers._wrap_functions(module)
    return found


class Run:
    def log(self, data: Mapping[str, float]) -> None:
        pass


def log_metric(key: str, value: float) -> None:
    pass


def test_values_of_several_writers_are_kept_apart(sent: Sent, writer: type[Writer]) -> None:
    for step in (1, 2):
        for folder in ("runs/a/train", "runs/a/val/", "runs/a/1700000000.25"):
            writer(folder).add_scalar("loss", step, step)
            writer(folder).add_scalar(folder[7:10], step, global_step=step)
    assert sent.values == {"loss": 2, "tra": 2, "val/loss": 2, "val/val": 2, "170": 2}


def test_values_of_writers_in_folders_of_the_same_name_are_kept_apart(
    sent: Sent, writer: type[Writer]
) -> None:
    for number, folder in enumerate(("1/train", "1/val", "2/train", "2/val", "./2/val/")):
        writer(folder).add_scalar("loss", number, 5)
    assert sent.values == {"loss": 0, "val/loss": 1, "train/loss": 2, "2/val/loss": 4}


def test_steps_of_tensorboard_may_have_fractions(sent: Sent, writer: type[Writer]) -> None:
    for epoch in (0.5, 1.25, 2.0):
        writer("runs").add_scalar("loss", epoch, epoch)
    assert sent.steps == [0, 1, 2]


def test_functions_that_were_taken_over_before_are_recorded(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = type("Run", (Run,), {"log": Run.log})
    wandb = library("wandb", monkeypatch, log=run().log)
    loggers._wrap_functions(library("wandb.sdk.wandb_run", monkeypatch, Run=run))
    wandb.log({"a": 1})
    run().log({"b": 2})
    mlflow = library("mlflow", monkeypatch, log_metric=log_metric)
    loggers._wrap_functions(library("mlflow.tracking.fluent", monkeypatch, log_metric=log_metric))
    mlflow.log_metric("c", 3)
    assert sent.values == {"a": 1, "b": 2, "c": 3}
