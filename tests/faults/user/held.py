"""A task that stays in one phase for a while, and tells in files which phase it is in.

`held.json` in this folder has `phase`, the `seconds` to stay in it, and the `pace` of a step.
"""

from __future__ import annotations

import io
import json
import os
import time
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from distrain.models.classification import Classification
from distrain.models.data import Data

FOLDER = Path(__file__).parent
HELD: dict[str, Any] = json.loads((FOLDER / "held.json").read_text())
RANK = int(os.environ.get("RANK", "0"))
PIECES = 20  # of a slow checkpoint


def mark(phase: str, step: int = 0) -> None:
    """State which phase this rank is in, in one atomic step."""
    partial = FOLDER / f"rank-{RANK}.new"
    partial.write_text(f"{phase} {step}")
    partial.rename(FOLDER / f"rank-{RANK}.phase")


def hold(phase: str) -> None:
    """Stay in a phase if it is the one to stay in."""
    if HELD["phase"] == phase:
        mark(phase)
        time.sleep(HELD["seconds"])


class Phases:
    """Counts steps and evaluations: the first evaluation and checkpoint are quick."""

    def __init__(self) -> None:
        self.steps = self.evaluations = self.saved = 0
        self.evaluating = False
        self._write = torch.save
        torch.save = self._save
        Finalize(None, hold, args=("end",), exitpriority=1)  # also in processes of `spawn`

    def step(self) -> None:
        if self.steps == 0:
            hold("start")
        self.evaluating = False
        self.steps += 1
        mark("training", self.steps)
        time.sleep(HELD["pace"])

    def evaluate(self) -> None:
        if not self.evaluating:
            self.evaluating = True
            self.evaluations += 1
            if self.evaluations > 1:
                hold("evaluation")

    def _save(self, content: Any, file: Any, *options: Any, **named: Any) -> None:
        """Write a checkpoint in pieces; torch saves other things too."""
        self.saved += str(getattr(file, "name", "")).endswith(".partial")
        if self.saved < 2 or HELD["phase"] != "checkpoint":
            return self._write(content, file, *options, **named)
        buffer = io.BytesIO()
        self._write(content, buffer)
        data = buffer.getbuffer()
        mark("checkpoint")
        for number in range(PIECES):
            begin, end = (len(data) * each // PIECES for each in (number, number + 1))
            file.write(data[begin:end])
            file.flush()
            time.sleep(HELD["seconds"] / PIECES)
        return None


class HeldTask(Classification):
    def __init__(self, model: nn.Module, data: Data) -> None:
        super().__init__(model, data)
        self.phases = Phases()

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        self.phases.step()
        return super().loss(model, batch)

    def metrics(self, model: nn.Module, batch: Any) -> Any:
        self.phases.evaluate()
        return super().metrics(model, batch)


def make(model: nn.Module, data: Data) -> HeldTask:
    return HeldTask(model, data)
