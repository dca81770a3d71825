"""Alternate epochs of the engine's loop and of a bare loop inside the ranks of a real run.

The task of this module replaces the loop's epoch by its own. Launcher, ranks, reporter, socket,
supervisor and record are those of every run. While the bare loop trains, the supervisor is stopped,
so its whole cost is counted for the engine.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from benchmarks.costs import time_per_call
from distrain.models.classification import Classification
from distrain.models.data import Data, collate
from distrain.runners.config.plan import share
from distrain.runners.protocol.reporter import Reporter
from distrain.runners.training import loop
from distrain.runners.training.trainer import Training

FORWARD, BACKWARD = (True, False, False, True), (False, True, True, False)


def classification(
    model: nn.Module, data: Data, seconds: float, out: str, bare_first: bool = False
) -> Classification:
    """Return the built-in task for a run that measures for `seconds`; rank 0 writes to `out`."""
    copies = copy.deepcopy(model), model
    task = Classification(copies[bare_first], data)
    turns = Turns(copies[not bare_first], seconds, Path(out))
    turns.engine = loop.train_epoch
    loop.train_epoch = turns.train
    return task


class Turns:
    """Epochs in the order ABBA BAAB, on models with equal initial weights."""

    def __init__(self, model: nn.Module, seconds: float, out: Path) -> None:
        self.model, self.seconds, self.out = model, seconds, out
        self.engine = loop.train_epoch

    def train(self, run: Training) -> bool:
        """Replace `loop.train_epoch`: run all blocks, then end the run."""
        self.run, self.bare = run, Bare(run, self.model)
        self.leads_supervisor = run.world.is_leader
        self.engine_s = 0.0
        for ours in FORWARD:  # warm both up
            self._timed(ours)
        reporter, supervisor = self._cpu_seconds()
        self.engine_s, pairs, same = 0.0, [], []
        began, order = time.monotonic(), FORWARD
        while self._all_go_on(time.monotonic() - began < self.seconds):
            times: dict[bool, list[float]] = {True: [], False: []}
            for ours in order:
                times[ours].append(self._timed(ours))
            pairs.append((sum(times[True]) / 2, sum(times[False]) / 2))
            same.append(times[False][0] / times[False][1])
            order = BACKWARD if order is FORWARD else FORWARD
        time.sleep(0.5)  # the last events are still being written
        reporter_after, supervisor_after = self._cpu_seconds()
        steps = run.epochs.steps
        found = {
            "steps": steps,
            "pairs": [(ours / steps, bare / steps) for ours, bare in pairs],
            "same": same,
            "reporter": (reporter_after - reporter) / self.engine_s,
            "supervisor": (supervisor_after - supervisor) / self.engine_s,
        }
        with time_per_call(run) as costs:
            for _ in range(2):
                self._timed(True)
        found["calls"] = {name: spent / (2 * steps) for name, spent in costs.items()}
        if run.world.is_leader:
            self.out.write_text(json.dumps(found))
        run.total_steps = run.step
        return True

    def _timed(self, ours: bool) -> float:
        """Return the seconds of an epoch, from a barrier before it to a barrier after it."""
        run = self.run
        with contextlib.nullcontext() if ours else self._supervisor_frozen():
            run.total_steps = run.step + run.epochs.steps + 1
            run.meter.begin()
            self._meet()
            began = time.perf_counter()
            if ours:
                self.engine(run)
                run.meter.flush()
            else:
                self.bare.epoch()
            self._meet()
            duration = time.perf_counter() - began
        if ours:
            self.engine_s += duration
        return duration

    def _meet(self) -> None:
        if self.run.world.device.type == "cuda":
            torch.cuda.synchronize()
        if self.run.world.size > 1:
            dist.barrier()

    def _all_go_on(self, here: bool) -> bool:
        if self.run.world.size == 1:
            return here
        answer = torch.tensor(int(here))
        dist.broadcast(answer, src=0)
        return bool(answer.item())

    @contextlib.contextmanager
    def _supervisor_frozen(self) -> Iterator[None]:
        pid = int(os.environ["DISTRAIN_SUPERVISOR"])
        if self.leads_supervisor:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            if self.leads_supervisor:
                os.kill(pid, signal.SIGCONT)

    def _cpu_seconds(self) -> tuple[float, float]:
        """Return the CPU seconds of this rank's reporting thread and of the supervisor so far."""
        assert isinstance(self.run.reporter, Reporter)
        thread = self.run.reporter.thread.ident
        assert thread is not None
        times = psutil.Process(int(os.environ["DISTRAIN_SUPERVISOR"])).cpu_times()
        reporter = time.clock_gettime(time.pthread_getcpuclockid(thread))
        return reporter, times.user + times.system


class Bare:
    """The same training written by hand: model, data and optimizer only.

    Without DDP it trains the run's own model, because the position of weights in memory matters
    more than the measured difference. Two DDPs cannot share a model: there it trains `spare`.
    """

    def __init__(self, run: Training, spare: nn.Module) -> None:
        train, world, device = run.config.train, run.world, run.world.device
        self.device, self.finish = device, run.task.finish
        self.dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(run.plan.precision)
        self.model, self.optimizer = run.model, run.optimizer
        if run.config.strategy == "ddp":
            ids = [device.index] if device.type == "cuda" else None
            layout = torch.channels_last if train.channels_last else torch.preserve_format
            self.model = DistributedDataParallel(
                spare.to(device=device, memory_format=layout),  # type: ignore[call-overload]
                device_ids=ids,
                gradient_as_bucket_view=True,
            )
            self.optimizer = torch.optim.SGD(
                self.model.parameters(), lr=run.plan.lr, momentum=train.momentum, fused=True
            )
        self.loader = DataLoader(
            run.task.train,
            batch_sampler=Shares(run.epochs.samples, train.batch_size, world.size, world.rank),
            collate_fn=collate,
        )

    def epoch(self) -> None:
        for batch in self.loader:
            inputs, labels = self._on_device(batch)
            with torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None):
                loss = F.cross_entropy(self.model(inputs).float(), labels)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def _on_device(self, batch: Any) -> Any:
        if self.device.type == "cpu":
            return batch
        moved = batch.to(self.device, non_blocking=True)
        return self.finish(moved) if self.finish else moved


class Shares:
    """Yields a new permutation per epoch, and of each global batch this rank's consecutive part."""

    def __init__(self, samples: int, batch_size: int, ranks: int, rank: int) -> None:
        self.samples, self.batch_size = samples, batch_size
        sizes = share(batch_size, ranks)
        self.start, self.size = sum(sizes[:rank]), sizes[rank]

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(self.samples).tolist()
        for begin in range(self.start, self.samples, self.batch_size):
            yield order[begin : begin + self.size]
