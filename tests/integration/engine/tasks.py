"""Tasks and data for tests, as factories for a config."""

from __future__ import annotations

import dataclasses
import math
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from distrain.models.classification import Classification
from distrain.models.data import Augmented, Data
from distrain.models.datasets import digits
from distrain.models.task import Sums
from distrain.runners.strategies import Strategy

BRIGHT = 0.19  # mean of the pixels of a digit; few have more


class HugeLoss(Classification):
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return super().loss(model, batch) * 1e4


def huge_loss(model: nn.Module, data: Data) -> HugeLoss:
    """A task whose gradients overflow in fp16 with the first loss scales."""
    return HugeLoss(model, data)


def jittered_digits(seed: int) -> Data:
    """Digits whose training images have random noise."""
    data = digits()
    return dataclasses.replace(data, train=Augmented(data.train, _jitter, seed))


def _jitter(image: Tensor) -> Tensor:
    return image + torch.randint(0, 2, image.shape, dtype=image.dtype)


class Logging(Classification):
    """A task that logs twice its loss in training; in evaluation nothing calls `loss`."""

    def __init__(self, model: nn.Module, data: Data) -> None:
        super().__init__(model, data)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        loss = super().loss(model, batch)
        self.log("twice", 2 * loss)
        return loss


class WithoutZeros(Classification):
    """A task that leaves out the digit 0, as a mean over tokens leaves out padding."""

    def __init__(self, model: nn.Module, data: Data) -> None:
        super().__init__(model, data)

    def weight(self, batch: Any) -> Tensor:
        _, labels = batch
        return (labels > 0).sum()

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        inputs, labels = batch
        loss = F.cross_entropy(model(inputs), labels, ignore_index=0, reduction="sum")
        return loss / self.weight(batch).clamp(min=1)


class Routed(nn.Module):
    """A network with a part that only few images use, and one that none uses."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.all, self.few, self.none = (nn.Linear(inputs, classes) for _ in range(3))

    def forward(self, images: Tensor) -> Tensor:
        pixels = images.flatten(1)
        logits: Tensor = self.all(pixels)
        few = pixels.mean(1) > BRIGHT
        if few.any():
            logits = logits.index_add(0, few.nonzero()[:, 0], self.few(pixels[few]))
        return logits


def routed(shape: Sequence[int], classes: int) -> Routed:
    return Routed(math.prod(shape), classes)


class Thawing(Classification):
    """A task that trains its bias from the third step on; weight decay does not move it before.

    `frozen` are the steps of this process in which it does not train it.
    """

    steps = 0

    def __init__(self, data: Data, held: bool = True, frozen: Sequence[int] = (1, 2)) -> None:
        super().__init__(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), data)
        self.bias = self.model[1].bias.requires_grad_(False)
        self.held = held
        self.frozen = frozen

    def parameter_groups(self, model: nn.Module) -> Any:
        return [{"params": model.parameters()}] if self.held else None

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        self.steps += 1
        self.bias.requires_grad_(self.steps not in self.frozen)
        return super().loss(model, batch)


class Drifting(Classification):
    """A task with BatchNorm, dropout and a teacher, which changes with each call of the loss."""

    def __init__(self, data: Data) -> None:
        super().__init__(normed((1, 8, 8), 10), data)
        self.teacher = nn.Linear(32, 10)
        self.calls = 0
        self.noise = torch.Generator().manual_seed(1)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        images, labels = batch
        self.calls += 1
        self.log("calls", self.calls)
        images = images + 0.1 * torch.rand(images.shape, generator=self.noise)
        with torch.no_grad():
            self.teacher.weight += self.calls
            for parameter in model.parameters():
                parameter.clamp_(-0.5, 0.5)
        return super().loss(model, (images, labels)) + 1e-3 * self.teacher.weight.mean()


class Growing(Classification):
    """A task that adds a layer to its model in the first step."""

    def __init__(self, data: Data) -> None:
        super().__init__(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), data)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        self.model.add_module("more", nn.Linear(10, 10))
        return super().loss(model, batch)


class OfFixedParameters(Strategy):
    """A strategy that would leave out what becomes trainable later."""

    reduces_unfrozen = False


class Turning(Classification):
    """A task of two optimizers, with a schedule of its own."""

    def __init__(self, model: nn.Module, data: Data) -> None:
        super().__init__(model, data)

    def optimizer(self, model: nn.Module) -> Any:
        first, *rest = model.parameters()
        return {
            "first": torch.optim.SGD([first], lr=0.02, momentum=0.9),
            "rest": torch.optim.Adam(rest, lr=0.002),
        }

    def schedule(self, step: int, total_steps: int) -> float:
        return 0.9**step


def normed(shape: Sequence[int], classes: int) -> nn.Module:
    """A network with BatchNorm and dropout."""
    layers = [nn.Linear(math.prod(shape), 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(32, classes))


class Restless(Classification):
    """A task whose evaluation draws random numbers, opens something and updates a buffer."""

    def __init__(self, data: Data) -> None:
        frozen = nn.BatchNorm1d(64).eval()
        super().__init__(Counting(nn.Flatten(), frozen, nn.Dropout(), nn.Linear(64, 10)), data)
        self.eval = _Noisy(data.eval)

    def metrics(self, model: nn.Module, batch: Any) -> Sums:
        torch.rand(1), random.random(), np.random.rand()
        return super().metrics(model, batch)


class Counting(nn.Sequential):
    def __init__(self, *modules: nn.Module) -> None:
        super().__init__(*modules)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, images: Tensor) -> Tensor:
        self.calls = self.calls + 1
        logits: Tensor = super().forward(images) + self.calls / 100
        return logits


class _Noisy(Dataset[Any]):
    def __init__(self, data: Dataset[Any]) -> None:
        self.data = data
        self.opened = 0

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Any:
        self.opened += 1
        image, label = self.data[index]
        return image + torch.rand(()) + self.opened, label


class Remembering(Classification):
    """A right task that needs whole batches in order and collects its predictions until their end.

    Its model counts its calls, and has a buffer that it makes itself and one that is expanded.
    """

    def __init__(self, data: Data) -> None:
        super().__init__(_Adaptive(), data)
        self.eval = _InOrder(data.eval)
        self.predictions: list[Tensor] = []
        self.counts = {"evaluated": torch.zeros(())}
        self.noise = torch.Generator().manual_seed(0)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        noise = torch.rand((), generator=self.noise)
        return super().loss(model, batch) * (1 + noise + self.counts["evaluated"])

    def metrics(self, model: nn.Module, batch: Any) -> Sums:
        images, _ = batch
        self.counts["evaluated"] += 1
        self.predictions.append(model(images).argmax(1))
        assert len(images) == 64
        noise = torch.rand((), generator=self.noise)
        constant = {"temperature": (0.07, 1), "many": (1 << 70, 1), "noise": (noise, len(images))}
        return {**super().metrics(model, batch), **constant}

    def derived(self, means: Mapping[str, float]) -> Mapping[str, float]:
        classes = len(torch.cat(self.predictions).unique()) + len(self.predictions)
        self.predictions = []
        return {"classes": classes}


class Scored(Classification):
    """A task with metrics that are no means: one object for all batches, and one for each."""

    def __init__(self, model: nn.Module, data: Data) -> None:
        super().__init__(model, data)
        self.auc = Auc()

    def metrics(self, model: nn.Module, batch: Any) -> Any:
        images, labels = batch
        logits = model(images)
        self.auc.update(logits[:, 0], labels == 0)
        f1 = F1()
        f1.update(logits.argmax(1) == 0, labels == 0)
        return {**super().metrics(model, batch), "auc": self.auc, "zero": f1}

    def derived(self, means: Mapping[str, float]) -> Mapping[str, float]:
        return {"gini": 2 * means["auc"] - 1}


@dataclass
class Pictures:
    """A batch that is an object of the user's."""

    images: Tensor
    labels: Tensor


class Fields(dict[str, Tensor]):
    """A batch whose keys are attributes."""

    __getattr__ = dict.__getitem__


class Selecting(nn.Module):
    """A network with a sparse buffer."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("selection", torch.eye(64).to_sparse(), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        selected = (self.selection @ images.flatten(1).T).T
        logits: Tensor = self.network(selected.view_as(images))
        return logits


class Unusual(Classification):
    """A task that is right, and unusual in one part."""

    def __init__(self, model: nn.Module, data: Data, part: str) -> None:
        super().__init__(model, data)
        self.part = part
        self.finish = lambda batch: batch
        if part == "sparse buffer":
            self.model = Selecting(model)

    def collate(self, batch: Any) -> Any:  # type: ignore[override]
        if self.part == "object":
            return Pictures(*batch), "the same for each batch"
        return Fields(images=batch[0], labels=batch[1])

    def _plain(self, batch: Any) -> Any:
        found = batch[0] if self.part == "object" else batch
        return found.images, found.labels

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return super().loss(model, self._plain(batch))

    def metrics(self, model: nn.Module, batch: Any) -> Sums:
        return super().metrics(model, self._plain(batch))


class Slipping(Classification):
    """A task with a mistake in one method."""

    def __init__(self, model: nn.Module, data: Data, method: str) -> None:
        super().__init__(model, data)
        slips = {
            "parameter_groups": lambda model: [{"params": model.named_parameters()}],
            "collate": lambda samples: None,
            "metrics": self._shrink,
            "reduced metrics": self._reduce,
            "loss": self._go_backward,
            "derived": lambda means: {"perplexity": math.exp(means["los"])},
        }
        if method == "first sample":
            self.collate = lambda batch: tuple(part[:1] for part in batch)  # type: ignore[misc]
        else:
            setattr(self, method.split()[-1], slips[method])

    def _reduce(self, model: nn.Module, batch: Any) -> Sums:
        sums = super().metrics(model, batch)
        torch.distributed.all_reduce(sums["loss"][0])
        return sums

    def _go_backward(self, model: nn.Module, batch: Any) -> Tensor:
        loss = super().loss(model, batch)
        loss.backward(retain_graph=True)
        return loss

    def _shrink(self, model: nn.Module, batch: Any) -> Sums:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.data.mul_(0.9)
        return super().metrics(model, batch)


class Percentile(Classification):
    """A task whose metric needs many samples, or a function that does not exist."""

    def __init__(self, model: nn.Module, data: Data, is_wrong: bool = False) -> None:
        super().__init__(model, data)
        self.kind = Unfinished if is_wrong else HundredthLoss

    def metrics(self, model: nn.Module, batch: Any) -> Any:
        images, labels = batch
        metric = self.kind()
        metric.losses = F.cross_entropy(model(images), labels, reduction="none").tolist()
        return {**super().metrics(model, batch), "percentile": metric}


class HundredthLoss:
    """The loss of the sample that has the hundredth smallest."""

    reductions: ClassVar = {"losses": "cat"}
    losses: list[float]

    def reset(self) -> None:
        self.losses = []

    def compute(self) -> float:
        return sorted(self.losses)[99]


class Unfinished(HundredthLoss):
    def compute(self) -> float:
        return hundredth(self.losses)  # type: ignore[name-defined,no-any-return] # noqa: F821


class Auc:
    """The probability that a positive sample has the higher score."""

    reductions: ClassVar = {"scores": "cat", "labels": "cat"}

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.scores = torch.zeros(0)
        self.labels = torch.zeros(0, dtype=torch.bool)

    def update(self, scores: Tensor, labels: Tensor) -> None:
        self.scores = torch.cat([self.scores, scores])
        self.labels = torch.cat([self.labels, labels])

    def compute(self) -> float:
        positive, negative = self.scores[self.labels], self.scores[~self.labels]
        if not (len(positive) and len(negative)):
            return math.nan
        return float((positive[:, None] > negative).double().mean())


class F1:
    reductions: ClassVar = {"counts": "sum"}

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.counts = torch.zeros(3, dtype=torch.int64)

    def update(self, found: Tensor, wanted: Tensor) -> None:
        self.counts += torch.stack([(found & wanted).sum(), found.sum(), wanted.sum()])

    def compute(self) -> dict[str, float]:
        both, found, wanted = self.counts.tolist()
        return {"f1": 2 * both / (found + wanted), "recall": both / wanted}


class _Adaptive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(64, 10)
        self.calls = 0
        self.register_buffer("ones", torch.ones(1).expand(10))

    def forward(self, images: Tensor) -> Tensor:
        if not self.calls:
            self.register_buffer("seen", torch.zeros(()))
        self.calls += 1
        self.seen += 1
        logits: Tensor = self.body(images.flatten(1)) * self.ones
        return logits + (self.calls + self.seen) * logits.detach() / 100


class Caching(nn.Module):
    """Makes a buffer in its first forward, and another one larger."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(64, 10)
        self.register_buffer("cache", torch.zeros(1))

    def forward(self, images: Tensor) -> Tensor:
        images = images.flatten(1)
        if not hasattr(self, "mean"):
            self.register_buffer("mean", images.mean(0))
        if len(images) > len(self.cache):
            self.cache = torch.zeros(len(images))
        logits: Tensor = self.body(images - self.mean)
        return logits + self.cache[: len(images), None]


def caching(shape: Sequence[int], classes: int) -> Caching:
    return Caching()


class _InOrder(Dataset[Any]):
    def __init__(self, data: Dataset[Any]) -> None:
        self.data = data
        self.next = 0

    def __len__(self) -> int:
        return 128

    def __getitem__(self, index: int) -> Any:
        assert index == self.next % 128, "a file that is read from its start to its end"
        self.next += 1
        return self.data[index]


class Scripted(Classification):
    """A task whose model has a scripted part with buffers."""

    def __init__(self, data: Data) -> None:
        scripted = torch.jit.script(nn.Sequential(nn.BatchNorm1d(64), nn.Linear(64, 10)))
        super().__init__(nn.Sequential(nn.Flatten(), scripted), data)


class Finishing(Classification):
    """A task whose `finish` draws from its own generator and uses modules outside the model."""

    def __init__(self, data: Data) -> None:
        super().__init__(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), data)
        self.generator = torch.Generator().manual_seed(0)
        self.seen = _Seen()
        self.finish = self.add_noise

    def add_noise(self, batch: Any) -> Any:
        images, labels = batch
        self.seen(images)
        noise = torch.rand(images.shape, generator=self.generator)
        return images + noise + self.seen.total / 1000 + len(self.seen.sizes), labels


class _Seen(nn.Module):
    """Counts samples in a buffer, in a plain tensor and in a list, as metric modules do."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))
        self.plain = torch.zeros(())
        self.sizes: list[int] = []

    def forward(self, images: Tensor) -> None:
        self.plain += len(images)
        self.total += self.plain
        self.sizes.append(len(images))


def in_own_folder(model: nn.Module, data: Data, folder: str) -> Classification:
    """A task whose ranks see different files under the same relative path."""
    os.chdir(f"{folder}/{dist.get_rank()}")
    return Classification(model, data)
