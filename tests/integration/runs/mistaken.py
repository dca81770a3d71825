"""A user's task with a mistake: its factory gets the kind of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from distrain.models.data import Data
from distrain.models.task import Task


def make(data: Data, kind: str) -> Task:
    return KINDS.get(kind, Mistaken)(data, kind)


class Net(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.used = nn.Linear(64, 10)
        self.used.requires_grad_(kind != "frozen")
        self.unused = nn.Linear(64, 10).requires_grad_(kind == "unused")

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.used(images.flatten(1))
        return logits


class Images(Dataset[Any]):
    def __init__(self, data: Dataset[Any], kind: str) -> None:
        self.data = data
        self.options = {"scale": (lambda image: image) if kind == "lambda" else abs}

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        image, label = self.data[index]
        return self.options["scale"](image), label


class Mistaken(Task):
    def __init__(self, data: Data, kind: str) -> None:
        self.kind = kind
        self.model = Net(kind)
        self.train = data.train
        self.eval = Images(data.eval, kind)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        images, labels = batch
        called = {"self": self.model, "forward": model.forward}.get(self.kind, model)
        reduction = "none" if self.kind == "vector" else "mean"
        loss = F.cross_entropy(called(images), labels, reduction=reduction)
        return loss.detach() if self.kind == "detached" else loss

    def metrics(self, model: nn.Module, batch: Any) -> Any:
        images, labels = batch
        losses = F.cross_entropy(model(images), labels, reduction="none")
        count = len(labels)
        match self.kind:
            case "bare mean":
                return {"loss": losses.mean()}
            case "hidden mean":
                return {"loss": (losses.mean(), count)}
            case "vector sum":
                return {"loss": (losses, count)}
            case "tuple":
                return losses.sum(), count
            case "fraction":
                return {"loss": (losses.sum(), count / 3)}
            case "numbers":
                return {"loss": [losses.sum().item(), torch.tensor(count)], "zero": (0, count)}
            case "ranked":
                return dict.fromkeys(["loss", f"{torch.distributed.get_rank()}"], (0, count))
        return {"loss": (losses.sum(), count)}


class Foreign(Mistaken):
    def configure_optimizers(self) -> None:
        pass


class Misspelt(Mistaken):
    def metric(self) -> None:
        pass


class Counting(Net):
    """Keeps in its checkpoints what is not loaded from them."""

    def get_extra_state(self) -> Any:
        return self.used.weight.detach().numpy()

    def set_extra_state(self, state: Any) -> None:
        pass


class Counted(Mistaken):
    def __init__(self, data: Data, kind: str) -> None:
        super().__init__(data, kind)
        self.model = Counting(kind)


class Unevaluated(Mistaken):
    """A task without evaluation data, which needs no metrics."""

    def __init__(self, data: Data, kind: str) -> None:
        super().__init__(data, kind)
        self.eval = None

    metrics = Task.metrics


KINDS = {
    "counted": Counted,
    "foreign": Foreign,
    "misspelt": Misspelt,
    "unevaluated": Unevaluated,
}
