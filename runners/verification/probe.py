"""What a task does that one process and several cannot do alike: random numbers, BatchNorm."""

from __future__ import annotations

import copy
import math
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from distrain.models.data import length
from distrain.runners.training.data_check import content_of
from distrain.runners.training.evaluation import in_evaluation_mode
from distrain.runners.training.random_state import seed_generators, set_random_state
from distrain.runners.verification.reference import PlainProcess

SAMPLES = 12
MAX_LOSS_DIFFERENCE = 1e-4  # relative; in training, of a batch and the mean of its parts
MAX_REPEATED_DIFFERENCE = 1e-5  # relative; of the loss of a batch and the same again


class Probe:
    """Facts about a task, from a few forward passes that leave the process as it was.

    `draws`: the loss draws random numbers in training (dropout).
    `has_random_metrics`: the same samples have other metrics the second time.
    `remembers`: in training, the loss depends on state of the task that is no buffer of its model,
    such as a generator of its own or a counter of its steps.
    `has_random_samples`: training samples differ from read to read.
    `has_plain_loss`: in evaluation mode, the loss neither draws, remembers nor moves buffers, as
    observers of quantization do.
    `couples`: in training, the loss of a batch is not the mean of its parts' (BatchNorm).
    `exact`: a process of the same task that computes in fp64; None if the task cannot.
    """

    def __init__(self, plain: PlainProcess) -> None:
        self._model = plain.model
        weights, buffers = copy.deepcopy(plain.state())
        self.draws = _draws(plain)
        self.remembers = _remembers(plain)
        with in_evaluation_mode(plain.model):
            self.has_plain_loss = not (_draws(plain) or _remembers(plain))
            plain.load(weights, buffers)
            self.has_plain_loss &= not _moves_buffers(plain)
        self.has_random_samples = _has_random_samples(plain, is_seeded=False)
        self.has_plain_loss &= not _has_random_samples(plain, is_seeded=True)
        self.has_random_metrics = _has_random_metrics(plain)
        self.exact = _make_exact(plain)
        self.couples = not self.draws and _couples(self.exact or plain)
        plain.load(weights, buffers)
        if self.exact is not None:
            self.exact.load(weights, buffers)

    @property
    def is_repeatable(self) -> bool:
        """Whether the plain process can compute the gradients of a step again."""
        return not (self.remembers or self.has_random_samples)

    def declarations(self, has_parts: bool) -> list[str]:
        """Return what cannot be equal to one process that takes all samples of a step at once."""
        found = []
        if self.draws:
            found.append(
                "random numbers in training (dropout) differ between ranks: the plain process "
                "draws the numbers of each rank for its part of the batch"
            )
        if self.remembers:
            found.append(
                "the loss depends on state that is no buffer of the model (a generator, a counter, "
                "a hidden state), which the plain process does not have: gradients not compared"
            )
        if self.has_random_samples:
            found.append(
                "training samples differ from read to read (augmentation that does not depend only "
                "on seed, epoch and sample): gradients not compared"
            )
        in_training = [module for module in self._model.modules() if module.training]
        norms = {type(module).__name__ for module in in_training if isinstance(module, _BatchNorm)}
        norms -= {nn.SyncBatchNorm.__name__}
        if has_parts and (norms or self.couples):
            cause = ", ".join(sorted(norms)) or "the network, in training"
            found.append(
                f"a batch has other statistics than its parts ({cause}): the plain process goes "
                "through the parts of the ranks one by one"
            )
        return found


def _make_exact(plain: PlainProcess) -> PlainProcess | None:
    process = PlainProcess(plain.config, plain.plan, plain.device, exact=True)
    try:
        (part,) = next(process.steps([[_sample_count(process)]], 1, 1))
        process.loss(part.batch)
        if process.task.eval is not None:
            process.evaluate([range(length(process.task.eval))])
    except Exception:  # mixes fp64 with tensors of its own, has no such kernel, or refuses fp64
        return None
    return process


def _draws(process: PlainProcess) -> bool:
    (part,) = next(process.steps([[_sample_count(process)]], 1, 1))
    before = content_of(process.random_state())
    process.loss(part.batch)
    return content_of(process.random_state()) != before


def _remembers(process: PlainProcess) -> bool:
    """Return whether a batch has another loss after that of another batch."""
    count = _sample_count(process)
    (part,), (other,) = process.steps([[count], [count]], 1, 1)
    weights, buffers = process.state()
    random_state = process.random_state()

    def loss(batch: Any) -> float:
        process.load(weights, buffers)
        set_random_state(random_state, process.device)
        return float(process.loss(batch).detach())

    first, _, again = loss(part.batch), loss(other.batch), loss(part.batch)
    process.load(weights, buffers)
    return not (
        math.isclose(first, again, rel_tol=MAX_REPEATED_DIFFERENCE)
        or (math.isnan(first) and math.isnan(again))
    )


def _moves_buffers(process: PlainProcess) -> bool:
    (part,) = next(process.steps([[_sample_count(process)]], 1, 1))
    before = content_of(process.state()[1])
    process.loss(part.batch)
    return content_of(process.state()[1]) != before


def _has_random_samples(process: PlainProcess, *, is_seeded: bool) -> bool:
    """Return whether a batch has other samples the second time; `is_seeded`: also if the global
    generators are in the same state.
    """
    found = set()
    for _ in range(2):
        if is_seeded:
            seed_generators(0)
        (part,) = next(process.steps([[_sample_count(process)]], 1, 1))
        found.add(content_of(part.batch))
    return len(found) > 1


def _has_random_metrics(process: PlainProcess) -> bool:
    """Return whether the same samples have other metrics the second time."""
    if process.task.eval is None:
        return False
    samples = range(length(process.task.eval))
    first, again = (process.evaluate([samples]) for _ in range(2))
    return any(
        not math.isclose(metrics.total, again[name].total, rel_tol=MAX_REPEATED_DIFFERENCE)
        for name, metrics in first.items()
        if name in again and math.isfinite(metrics.total)
    )


def _couples(process: PlainProcess) -> bool:
    """Return whether training mode makes the loss depend on which samples are in a batch.

    If it does in evaluation mode too, the cause is the task and not the network.
    """
    with in_evaluation_mode(process.model):
        is_mean = _is_mean(process)
    return is_mean and not _is_mean(process)


def _is_mean(process: PlainProcess) -> bool:
    """Return whether the loss of a batch is the mean of those of its halves."""
    seed_generators(0)
    (whole,) = next(process.steps([[_sample_count(process)]], 1, 1))
    seed_generators(0)
    halves = next(process.steps([[_sample_count(process)]], 1, 2))
    loss = float(process.loss(whole.batch).detach())
    mean = sum(float(process.loss(half.batch).detach()) * half.share for half in halves)
    return abs(mean - loss) <= MAX_LOSS_DIFFERENCE * abs(loss)


def _sample_count(process: PlainProcess) -> int:
    return min(SAMPLES, process.epochs.samples)
