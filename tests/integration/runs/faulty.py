"""A user's task that fails: `what` happens on `rank` at `step`."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from distrain.models.classification import Classification
from distrain.models.data import Data


def make(
    model: nn.Module, data: Data, what: str = "", rank: int = 1, step: int = 5, pace: float = 0.0
) -> Faulty:
    if step == 0:
        act(what, rank)
    return Faulty(model, data, what, rank, step, pace)


class Faulty(Classification):
    def __init__(
        self, model: nn.Module, data: Data, what: str, rank: int, step: int, pace: float
    ) -> None:
        super().__init__(model, data)
        self.what, self.rank, self.step, self.pace = what, rank, step, pace
        self.calls = 0

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        self.calls += 1
        time.sleep(self.pace)
        loss = super().loss(model, batch)
        if self.calls == self.step:
            if self.what == "nan" and int(os.environ["RANK"]) == self.rank:
                return loss * float("nan")
            act(self.what, self.rank)
        return loss


def act(what: str, rank: int) -> None:
    if int(os.environ.get("RANK", "0")) != rank:
        return
    print(f"rank {rank} is about to {what}")
    if what == "raise":
        raise ValueError("the user's own mistake")
    if what == "raise something unspeakable":
        raise UnspeakableError
    if what == "raise a flood":
        raise ValueError("x" * 5_000_000 + "\udcff")
    if what == "interrupt":
        raise KeyboardInterrupt
    if what == "exit":
        sys.exit(3)
    if what == "vanish":
        os._exit(5)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "hang":
        Path("hanging").touch()
        time.sleep(1000)
    if what == "hold the lock of Python":
        re.match("(a+)+$", "a" * 40 + "b")  # takes longer than any test
    if what == "linger":
        threading.Thread(target=time.sleep, args=(1000,)).start()
    if what == "skip a collective":
        torch.distributed.broadcast(torch.ones(3), 0)


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")
