"""The built-in task in a rank of `soak`: it counts for itself, and measures the rank from inside.

Each rank appends a line of JSON to a file every few seconds, and a last one at its exit.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
import threading
import time
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from distrain.models.classification import Classification
from distrain.models.data import Data
from distrain.models.task import Sums
from distrain.runners.protocol.reporter import Reporter

FOLDER = "SOAK_FOLDER"
EVERY_S = 5.0
# What belongs to the program, not to the object that refers to it.
_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, CodeType)


class Counted(Classification):
    """Counts its steps, samples and evaluated samples without help of the engine."""

    def __init__(self, model: nn.Module, data: Data) -> None:
        super().__init__(model, data)
        self.counts = {"steps": 0, "samples": 0, "evaluated": 0}
        self._due = 0.0
        self._reporter = _running_reporter()
        self._path = Path(os.environ[FOLDER]) / f"rank-{os.environ['RANK']}.ndjson"
        register_optimizer_step_post_hook(self._count_step)
        atexit.register(self._write)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        self.counts["samples"] += len(batch[1])
        return super().loss(model, batch)

    def metrics(self, model: nn.Module, batch: Any) -> Sums:
        if self.counts["samples"]:  # one batch is evaluated before the first step, as a check
            self.counts["evaluated"] += len(batch[1])
        return super().metrics(model, batch)

    def _count_step(self, *_: Any) -> None:
        self.counts["steps"] += 1
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY_S
            self._write()

    def _write(self) -> None:
        """Append the counts, the memory blocks that Python holds, and the reporter's bytes."""
        found = {"time": time.time(), "blocks": sys.getallocatedblocks(), **self.counts}
        found["reporter"] = size_of(self._reporter)
        with self._path.open("a") as file:
            file.write(json.dumps(found) + "\n")


def _running_reporter() -> Reporter:
    """Return the reporter of this rank, which its thread runs; it is frozen, so gc has no list."""
    [thread] = [each for each in threading.enumerate() if each.name == "reporter"]
    reporter: Reporter = thread._target.__self__  # type: ignore[attr-defined]
    return reporter


def size_of(root: object) -> int:
    """Return the bytes of an object and of all that it refers to, without code and threads."""
    sizes: dict[int, int] = {}
    found = [root]
    while found:
        each = found.pop()
        if id(each) in sizes or isinstance(each, (*_SHARED, threading.Thread)):
            continue
        sizes[id(each)] = sys.getsizeof(each)
        found += gc.get_referents(each)
    return sum(sizes.values())


def classification(model: nn.Module, data: Data) -> Counted:
    return Counted(model, data)
