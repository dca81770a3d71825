"""What a rank measures of itself: losses and seconds, in windows. The hot path of a step adds to
sums; it neither synchronises with a GPU nor does I/O.
"""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runners.clock import Clock, PendingReading
from runners.events import OTHER, PHASES, NonFinite, Window
from runners.reporter import NullReporter, Reporter

WIDEST = 4096  # steps of a window at most: it bounds the losses that wait on the device


@dataclass
class Closed:
    """A window whose losses and times are still on their way from the device."""

    time: float
    epoch: int
    step: int
    steps: int
    lr: float
    warmup: bool
    reading: PendingReading
    losses: Tensor | list[float]
    samples: list[int]
    micro_batches: int


class Meter:
    """Collects steps into windows and says them, one window late where a GPU is involved.

    Throughput counts the steps after `warmup_until`. `finite` turns False with the first loss
    that was not.
    """

    def __init__(
        self,
        reporter: Reporter | NullReporter,
        rank: int,
        clock: Clock,
        window_s: float,
        warmup_until: int,
    ) -> None:
        self._reporter, self._rank, self._clock = reporter, rank, clock
        self._window_s, self._warmup_until = window_s, warmup_until
        self._late: list[Closed] = []
        self.finite = True

    def begin(self) -> None:
        """Open a window; what happened since the last one closed is in none."""
        self._forget()
        self._clock.start()

    def _forget(self) -> None:
        self._losses: list[Any] = []
        self._samples: list[int] = []
        self._skipped: list[Any] = []
        self._steps = self._whole = 0

    def loss(self, loss: Tensor, samples: int) -> None:
        """The mean loss of a micro-batch, still on its device."""
        # Where there is no device to wait for, the figure itself: to stack them would cost more.
        self._losses.append(loss.item() if loss.is_cpu else loss.detach())
        self._samples.append(samples)

    def step(self, epoch: int, step: int, lr: float, skipped: Tensor | None) -> None:
        """A step is finished; closes the window when it is long enough."""
        self._steps += 1
        self._whole = len(self._losses)
        self._epoch, self._step, self._lr = epoch, step, lr
        if skipped is not None:
            self._skipped.append(skipped.item() if skipped.is_cpu else skipped)
        full = self._clock.elapsed() >= self._window_s or self._steps >= WIDEST
        if full or step == self._warmup_until:
            self._close()
            self._clock.mark(OTHER)  # what it took to say so is part of the next window

    def _close(self) -> None:
        """Close the open window, if it holds a step, and say what is ready."""
        if self._steps:
            # Before the clock's last stamp, so that a reading which is ready has its losses.
            losses = _to_host([*self._losses, *self._skipped])
            self._late.append(
                Closed(
                    time=time.time(),
                    epoch=self._epoch,
                    step=self._step,
                    steps=self._steps,
                    lr=self._lr,
                    warmup=self._step <= self._warmup_until,
                    reading=self._clock.close(),
                    losses=losses,
                    samples=self._samples,
                    micro_batches=len(self._losses),
                )
            )
            self._forget()
        while self._late and self._late[0].reading.is_ready():
            self._say(self._late.pop(0))

    def flush(self) -> None:
        """Close the window and wait for everything: at evaluation, checkpoint and end."""
        self._close()
        while self._late:
            self._say(self._late.pop(0))

    def give_up(self) -> None:
        """Say the finished steps of the open window; wait for nothing, as something has failed."""
        del self._losses[self._whole :], self._samples[self._whole :]
        with contextlib.suppress(Exception):  # a device that is lost has nothing more to say
            self._close()

    def _say(self, closed: Closed) -> None:
        reading = closed.reading.get()
        values = closed.losses if isinstance(closed.losses, list) else closed.losses.tolist()
        losses = values[: closed.micro_batches]
        pairs = [(loss, n) for loss, n in zip(losses, closed.samples, strict=True) if n]
        finite = all(math.isfinite(loss) for loss, _ in pairs)
        if self.finite and not finite:
            self.finite = False
            self._cry(closed, losses)
        self._reporter.say(
            Window(
                time=closed.time,
                rank=self._rank,
                epoch=closed.epoch,
                step=closed.step,
                steps=closed.steps,
                samples=sum(closed.samples),
                loss_sum=math.fsum(loss * n for loss, n in pairs) if finite else None,
                loss_min=min((loss for loss, _ in pairs), default=None) if finite else None,
                loss_max=max((loss for loss, _ in pairs), default=None) if finite else None,
                lr=closed.lr,
                seconds=reading.seconds,
                skipped=int(sum(values[closed.micro_batches :])),
                warmup=closed.warmup,
                overlap=reading.overlap,
                wait=reading.wait,
                **{phase: reading.phases[phase] for phase in PHASES},
            )
        )

    def _cry(self, closed: Closed, losses: list[float]) -> None:
        counted = enumerate(zip(losses, closed.samples, strict=True))
        first = next(i for i, (loss, n) in counted if n and not math.isfinite(loss))
        per_step = closed.micro_batches // closed.steps
        step = closed.step - closed.steps + 1 + first // per_step
        self._reporter.say(
            NonFinite(time=closed.time, rank=self._rank, step=step, loss=str(losses[first]))
        )


def _to_host(values: list[Any]) -> Tensor | list[float]:
    """Figures as they are; tensors, all of one device, on their way to pinned memory."""
    if isinstance(values[0], float):
        return values
    stacked = torch.stack(values)
    host = torch.empty(stacked.shape, dtype=stacked.dtype, pin_memory=stacked.is_cuda)
    return host.copy_(stacked, non_blocking=True)
