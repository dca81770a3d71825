"""What a task does that one process and several cannot do alike: random numbers, BatchNorm."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from distrain.runners.training.evaluation import in_evaluation_mode
from distrain.runners.training.random_state import seed_generators
from distrain.runners.verification.reference import PlainProcess

SAMPLES = 12
MAX_LOSS_DIFFERENCE = 1e-4  # relative; in training, of a batch and the mean of its parts


class Probe:
    """Facts about a task, from a few forward passes that leave the process as it was.

    `draws`: the loss draws random numbers in training (dropout).
    `draws_in_evaluation`: it also does in evaluation mode.
    `couples`: in training, the loss of a batch is not the mean of its parts' (BatchNorm).
    `exact`: a process of the same task that computes in fp64; None if the task cannot.
    """

    def __init__(self, plain: PlainProcess) -> None:
        self._model = plain.model
        weights, buffers = copy.deepcopy(plain.state())
        self.draws = _draws(plain)
        with in_evaluation_mode(plain.model):
            self.draws_in_evaluation = _draws(plain)
        self.exact = _make_exact(plain)
        self.couples = not self.draws and _couples(self.exact or plain)
        plain.load(weights, buffers)
        if self.exact is not None:
            self.exact.load(weights, buffers)

    def declarations(self, has_parts: bool) -> list[str]:
        """Return what cannot be equal to one process that takes all samples of a step at once."""
        found = []
        if self.draws:
            found.append(
                "random numbers in training (dropout) differ between ranks: the plain process "
                "draws the numbers of each rank for its part of the batch"
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
        (part,) = next(process.steps([[min(2, process.epochs.samples)]], 1, 1))
        process.loss(part.batch)
    except (RuntimeError, TypeError):  # mixes fp64 with tensors of its own, or has no such kernel
        return None
    return process


@torch.no_grad()
def _draws(process: PlainProcess) -> bool:
    (part,) = next(process.steps([[_sample_count(process)]], 1, 1))
    before = process.random_state()
    process.loss(part.batch)
    return any(
        state is not None and other is not None and not torch.equal(state, other)
        for state, other in zip(before, process.random_state(), strict=True)
    )


def _couples(process: PlainProcess) -> bool:
    """Return whether training mode makes the loss depend on which samples are in a batch.

    If it does in evaluation mode too, the cause is the task and not the network.
    """
    with in_evaluation_mode(process.model):
        is_mean = _is_mean(process)
    return is_mean and not _is_mean(process)


@torch.no_grad()
def _is_mean(process: PlainProcess) -> bool:
    """Return whether the loss of a batch is the mean of those of its halves."""
    seed_generators(0)
    (whole,) = next(process.steps([[_sample_count(process)]], 1, 1))
    seed_generators(0)
    halves = next(process.steps([[_sample_count(process)]], 1, 2))
    loss = float(process.loss(whole.batch))
    mean = sum(float(process.loss(half.batch)) * half.share for half in halves)
    return abs(mean - loss) <= MAX_LOSS_DIFFERENCE * abs(loss)


def _sample_count(process: PlainProcess) -> int:
    return min(SAMPLES, process.epochs.samples)
