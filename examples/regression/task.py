"""A regression task: the progression of diabetes after a year, from ten measurements.

442 real patients (Efron et al., "Least Angle Regression", 2004), as shipped with scikit-learn.
The task has its own loss and metrics. Run it from this folder:

    distrain run regression.toml
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_diabetes
from torch import nn
from torch.utils.data import TensorDataset

from distrain.models.task import Task

HELD_OUT = 88


def make_task(hidden=64, dropout=0.1):
    """Return the task; the preset names this factory and passes `[task.args]`."""
    return Diabetes(hidden, dropout)


class Diabetes(Task):
    best = "mae"
    best_is = "min"

    def __init__(self, hidden, dropout):
        inputs, targets = load_diabetes(return_X_y=True, scaled=False)
        inputs, targets = torch.tensor(inputs).float(), torch.tensor(targets).float()
        order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
        held, kept = order[:HELD_OUT], order[HELD_OUT:]

        # The scaling must not use the held-out patients.
        inputs = (inputs - inputs[kept].mean(0)) / inputs[kept].std(0)
        self.centre, self.spread = targets[kept].mean().item(), targets[kept].std().item()

        self.train = TensorDataset(inputs[kept], targets[kept])
        self.eval = TensorDataset(inputs[held], targets[held])
        self.model = nn.Sequential(
            nn.Linear(inputs.shape[1], hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, 1),
        )

    def loss(self, model, batch):
        inputs, targets = batch
        return F.mse_loss(model(inputs).squeeze(1), (targets - self.centre) / self.spread)

    def metrics(self, model, batch):
        """Return sums and counts: `loss` in variances, `mae` in the unit of the targets."""
        inputs, targets = batch
        predicted = model(inputs).squeeze(1).double() * self.spread + self.centre
        errors = predicted - targets
        return {
            "loss": ((errors / self.spread).square().sum(), len(targets)),
            "mae": (errors.abs().sum(), len(targets)),
        }
