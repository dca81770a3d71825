"""The example of a user's own task: a folder with a module and a preset."""

import sys

import pytest
import torch
from torch.utils.data import DataLoader

from distrain.models.build import build_task
from distrain.models.catalog import problems
from distrain.models.importing import make_importable, user_folders
from distrain.runners.config.schema import RunConfig
from tests.support import ROOT

FOLDER = ROOT / "examples" / "regression"


@pytest.fixture
def config(monkeypatch):
    monkeypatch.chdir(FOLDER)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    make_importable(user_folders(None))
    return RunConfig.from_toml((FOLDER / "regression.toml").read_text())


@pytest.fixture
def task(config):
    torch.manual_seed(config.train.seed)
    return build_task(config.task, config.model, config.data)


def test_the_preset_has_no_problem_and_runs_under_ddp(config):
    assert config.strategy == "ddp"
    names = {"task": config.task.name, "model": config.model.name, "data": config.data.name}
    assert problems(**names) == []


def test_training_and_evaluation_patients_do_not_overlap(task):
    kept, held = (set(map(str, part.tensors[0].tolist())) for part in (task.train, task.eval))
    assert (len(kept), len(held)) == (354, 88)
    assert not kept & held


def test_its_metrics_do_not_depend_on_the_batches(task):
    task.model.eval()

    def means(width):
        batches = DataLoader(task.eval, batch_size=width, collate_fn=task.collate)
        found = [task.metrics(task.model, batch) for batch in batches]
        return {
            name: sum(m[name][0].item() for m in found) / sum(m[name][1] for m in found)
            for name in found[0]
        }

    assert means(7) == pytest.approx(means(88), rel=1e-6)
    assert set(means(88)) == {"loss", "mae"}


def test_a_gradient_step_lowers_its_loss(task):
    task.model.eval()
    batch = task.train[:]
    before = task.loss(task.model, batch)
    before.backward()
    with torch.no_grad():
        for weight in task.model.parameters():
            weight -= 0.05 * weight.grad
    assert task.loss(task.model, batch) < before
