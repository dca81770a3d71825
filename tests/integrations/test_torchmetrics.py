"""Given a task with metrics of torchmetrics, their values are those of one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torchmetrics.classification import BinaryAUROC, MulticlassF1Score
from torchmetrics.regression import PearsonCorrCoef

from distrain.models.build import build_task
from distrain.runners.config.schema import RunConfig
from tests.integration.cli.conftest import Distrain
from tests.integration.scripts.conftest import Write

TASK = """
    from distrain.models.classification import Classification
    from torchmetrics.classification import BinaryAUROC, MulticlassF1Score, MulticlassPrecision
    from torchmetrics.regression import PearsonCorrCoef


    class Scored(Classification):
        def __init__(self, model, data):
            super().__init__(model, data)
            self.auroc = BinaryAUROC()
            precision = MulticlassPrecision(10, average="macro")
            self.double = precision + precision
            self.pearson = PearsonCorrCoef()

        def metrics(self, model, batch):
            images, labels = batch
            logits = model(images)
            self.auroc.update(logits[:, 0].sigmoid(), labels == 0)
            self.double.update(logits, labels)
            self.pearson.update(logits[:, 0], labels.float())
            f1 = MulticlassF1Score(10)
            f1.update(logits, labels)
            return {
                **super().metrics(model, batch),
                "auroc": self.auroc,
                "double": self.double,
                "pearson": self.pearson,
                "f1": f1,
            }
"""


@pytest.mark.parametrize("ranks", [1, 3])
def test_values_are_those_of_torchmetrics_over_all_samples(
    ranks: int, write: Write, distrain: Distrain, tmp_path: Path
) -> None:
    write("scored.py", TASK)
    settings = ["task.name=scored:Scored", "train.epochs=0", "eval.batch_size=50"]
    options = [word for setting in settings for word in ("--set", setting)]
    done = distrain("run", "ddp", "--json", "--devices", f"cpu:{ranks}", *options)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["eval"]

    logits, labels = outputs()
    auroc, f1, pearson = BinaryAUROC(), MulticlassF1Score(10), PearsonCorrCoef()
    assert found["f1"] == pytest.approx(float(f1(logits, labels)), rel=1e-6)
    # Two scores that differ by a rounding may be in another order.
    expected = float(auroc(logits[:, 0].sigmoid(), labels == 0))
    assert found["auroc"] == pytest.approx(expected, rel=1e-4)
    correlation = float(pearson(logits[:, 0], labels.float()))
    assert found["pearson"] == pytest.approx(correlation, rel=1e-4)
    chosen = logits.argmax(1)
    classes = [each for each in range(10) if ((labels == each) | (chosen == each)).any()]
    precisions = [
        float(((chosen == each) & (labels == each)).sum() / (chosen == each).sum().clamp(min=1))
        for each in classes
    ]
    assert found["double"] == pytest.approx(2 * sum(precisions) / len(precisions), rel=1e-6)


def outputs() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of the untrained model of the preset for all evaluation samples."""
    config = RunConfig()
    torch.manual_seed(config.train.seed)
    task = build_task(config.task, config.model, config.data)
    images, labels = task.eval.__getitems__(list(range(len(task.eval))))
    with torch.no_grad():
        return task.model.eval()(images), labels
