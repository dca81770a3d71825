"""What a rank measures of itself: losses and seconds, in windows of consecutive steps.

In the hot path a step only adds to sums: it neither synchronises with a GPU nor does I/O.
"""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from distrain.runners.distributed.timing import Clock, PendingReading
from distrain.runners.instrumentation.logged_values import LoggedValues
from distrain.runners.protocol.events import (
    OTHER,
    PHASES,
    Logged,
    LoggedStats,
    NonFinite,
    Window,
)
from distrain.runners.protocol.reporter import NullReporter, Reporter

GRADIENT_NORM = "grad_norm"
MAX_WINDOW_STEPS = 4096  # bounds the losses that a window keeps on the device


@dataclass
class ClosedWindow:
    """A window whose losses and times may still be on their way from the device."""

    time: float
    epoch: int
    step: int
    steps: int
    lr: float
    warmup: bool
    reading: PendingReading
    losses: Tensor | list[float]  # of the micro-batches, then flags of skipped steps, then norms
    samples: list[int]
    weights: list[float]
    micro_batches: int
    norms: int

    @property
    def loss_weight(self) -> float | None:
        """The sum of the weights; None where they are the numbers of samples."""
        return None if self.weights == self.samples else math.fsum(self.weights)


class Meter:
    """Collects steps into windows and reports them; on a GPU one window late.

    `window_s` is the least duration of a window in seconds. Windows up to the step
    `warmup_until` do not count for throughput. `finite` becomes False with the first loss that
    is not finite. `logged` collects what the task logs, which is sent with the windows.
    """

    def __init__(
        self,
        reporter: Reporter | NullReporter,
        rank: int,
        clock: Clock,
        window_s: float,
        warmup_until: int,
    ) -> None:
        self._reporter = reporter
        self._rank = rank
        self._clock = clock
        self._window_s = window_s
        self._warmup_until = warmup_until
        self._pending: list[ClosedWindow] = []
        self.logged = LoggedValues()
        self.finite = True
        self._reset()

    def begin(self) -> None:
        """Open a window; the time since the last one closed belongs to none."""
        self._reset()
        self._clock.start()

    def _reset(self) -> None:
        self._losses: list[Any] = []
        self._samples: list[int] = []
        self._weights: list[float] = []
        self._skipped: list[Any] = []
        self._norms: list[Any] = []
        self._steps = 0
        self._losses_of_steps = 0  # losses of finished steps: a prefix of `_losses`

    def add_loss(self, loss: Tensor, samples: int, weight: float | None = None) -> None:
        """Add the mean loss of a micro-batch, which may still be computed on its device.

        `weight`: the samples that it counts for in the mean loss of the step, if not as many as
        it has.
        """
        # On the CPU the number itself: nothing has to be waited for, and stacking costs more.
        self._losses.append(loss.item() if loss.is_cpu else loss.detach())
        self._samples.append(samples)
        self._weights.append(samples if weight is None else weight)

    def end_step(
        self,
        epoch: int,
        step: int,
        lr: float,
        skipped: Tensor | None,
        norm: Tensor | None = None,
    ) -> None:
        """Finish a step, and close the window if it is long enough.

        `norm` is that of the gradients before they were clipped.
        """
        self._clock.end_step()
        self._steps += 1
        self._losses_of_steps = len(self._losses)
        self._epoch = epoch
        self._step = step
        self._lr = lr
        if skipped is not None:
            self._skipped.append(skipped.item() if skipped.is_cpu else skipped)
        if norm is not None:
            self._norms.append(norm.item() if norm.is_cpu else norm)
        is_full = self._clock.elapsed() >= self._window_s or self._steps >= MAX_WINDOW_STEPS
        if is_full or step == self._warmup_until:
            self._close()
            self._clock.mark(OTHER)  # the time of reporting is part of the next window

    def _close(self) -> None:
        """Close the open window, if it has a step, and report the windows that are ready."""
        if self._steps:
            # Before the clock's last stamp: if the reading is ready, then so are the losses.
            losses = _copy_to_host([*self._losses, *self._skipped, *self._norms])
            self._pending.append(
                ClosedWindow(
                    time=time.time(),
                    epoch=self._epoch,
                    step=self._step,
                    steps=self._steps,
                    lr=self._lr,
                    warmup=self._step <= self._warmup_until,
                    reading=self._clock.close(),
                    losses=losses,
                    samples=self._samples,
                    weights=self._weights,
                    micro_batches=len(self._losses),
                    norms=len(self._norms),
                )
            )
            self._reset()
        while self._pending and self._pending[0].reading.is_ready():
            self._report(self._pending.pop(0))
        self._send_logged()

    def _send_logged(self, until: float = 0.0) -> None:
        for event in self.logged.take(self._rank, until):
            self._reporter.send(event)

    def flush(self) -> None:
        """Close the window and report all; called at evaluations, checkpoints and the end."""
        self._close()
        while self._pending:
            self._report(self._pending.pop(0))
        self._send_logged(until=math.inf)

    def flush_after_error(self) -> None:
        """Report the finished steps of the open window without waiting for the device.

        The time since the last mark is left out: the rank may have hung in it until the error.
        """
        del self._losses[self._losses_of_steps :]
        del self._samples[self._losses_of_steps :]
        del self._weights[self._losses_of_steps :]
        with contextlib.suppress(Exception):  # the device may be lost
            self._clock.skip()
            self._close()

    def _report(self, closed: ClosedWindow) -> None:
        reading = closed.reading.get()
        values = closed.losses if isinstance(closed.losses, list) else closed.losses.tolist()
        losses = values[: closed.micro_batches]
        flags = values[closed.micro_batches : len(values) - closed.norms]
        norms = values[len(values) - closed.norms :]
        pairs = [(loss, n) for loss, n in zip(losses, closed.weights, strict=True) if n]
        is_finite = all(math.isfinite(loss) for loss, _ in pairs)
        if self.finite and not is_finite:
            self.finite = False
            self._report_non_finite(closed, losses)
        weighted = [loss * n for loss, n in pairs]
        has_sum = math.isfinite(sum(weighted))  # not of losses close to the largest float either
        self._reporter.send(
            Window(
                time=closed.time,
                rank=self._rank,
                epoch=closed.epoch,
                step=closed.step,
                steps=closed.steps,
                samples=sum(closed.samples),
                loss_sum=math.fsum(weighted) if has_sum else None,
                loss_min=min((loss for loss, _ in pairs), default=None) if has_sum else None,
                loss_max=max((loss for loss, _ in pairs), default=None) if has_sum else None,
                lr=closed.lr,
                seconds=reading.seconds,
                skipped=int(sum(flags)),
                warmup=closed.warmup,
                loss_weight=closed.loss_weight,
                overlap=reading.overlap,
                wait=reading.wait,
                **{phase: reading.phases[phase] for phase in PHASES},
            )
        )
        if norms:
            stats = {GRADIENT_NORM: LoggedStats.of(norms)}
            self._reporter.send(
                Logged(time=closed.time, rank=self._rank, step=closed.step, values=stats)
            )

    def _report_non_finite(self, closed: ClosedWindow, losses: list[float]) -> None:
        """Report the first loss that is not finite, with the step that it belongs to."""
        counted = enumerate(zip(losses, closed.weights, strict=True))
        first = next(i for i, (loss, n) in counted if n and not math.isfinite(loss))
        per_step = closed.micro_batches // closed.steps
        step = closed.step - closed.steps + 1 + first // per_step
        self._reporter.send(
            NonFinite(time=closed.time, rank=self._rank, step=step, loss=str(losses[first]))
        )


def _copy_to_host(values: list[Any]) -> Tensor | list[float]:
    """Return floats as they are; start to copy tensors, all of one device, to pinned memory."""
    if isinstance(values[0], float):
        return values
    stacked = torch.stack(values)
    host = torch.empty(stacked.shape, dtype=stacked.dtype, pin_memory=stacked.is_cuda)
    return host.copy_(stacked, non_blocking=True)
