"""Inside the ranks of a real run: an epoch of the engine's loop, an epoch of a bare one, by turns.

A task of this module puts its own epoch in the place of the loop's. Launcher, ranks, reporter,
socket, supervisor and record are those of every run. While the bare loop trains, the supervisor
is frozen, so that all it does is paid for by the engine's turns.
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

from benchmarks.costs import synchronisations, time_per_call
from models.classification import Classification
from models.data import Data, collate
from runners import loop
from runners.plan import share
from runners.reporter import Reporter
from runners.training import Training

FORWARD, BACKWARD = (True, False, False, True), (False, True, True, False)


def classification(
    model: nn.Module, data: Data, seconds: float, out: str, bare_first: bool = False
) -> Classification:
    """The built-in task, whose run is `seconds` of turns; rank 0 writes what it saw to `out`."""
    copies = copy.deepcopy(model), model
    task = Classification(copies[bare_first], data)
    turns = Turns(copies[not bare_first], seconds, Path(out))
    turns.engine = loop._epoch
    loop._epoch = turns.train
    return task


class Turns:
    """Blocks of one epoch each, in the order ABBA BAAB, of models that began alike."""

    def __init__(self, model: nn.Module, seconds: float, out: Path) -> None:
        self.model, self.seconds, self.out = model, seconds, out
        self.engine = loop._epoch

    def train(self, run: Training) -> bool:
        """Stands in for `loop._epoch`: all turns, then the end of the run."""
        self.run, self.bare = run, Bare(run, self.model)
        self.leads_supervisor = run.world.leads
        self.engine_s = 0.0
        for ours in FORWARD:  # warm both up
            self._timed(ours)
        reporter, supervisor = self._cpu_seconds()
        self.engine_s, pairs = 0.0, []
        began, order = time.monotonic(), FORWARD
        while self._all_go_on(time.monotonic() - began < self.seconds):
            times: dict[bool, float] = {True: 0.0, False: 0.0}
            for ours in order:
                times[ours] += self._timed(ours)
            pairs.append((times[True] / 2, times[False] / 2))
            order = BACKWARD if order is FORWARD else FORWARD
        time.sleep(0.5)  # what was said last is still to be written
        reporter_after, supervisor_after = self._cpu_seconds()
        steps = run.steps_per_epoch
        found = {
            "steps": steps,
            "pairs": [(ours / steps, bare / steps) for ours, bare in pairs],
            "reporter": (reporter_after - reporter) / self.engine_s,
            "supervisor": (supervisor_after - supervisor) / self.engine_s,
            **self._on_cuda(),
        }
        with time_per_call(run) as costs:
            for _ in range(2):
                self._timed(True)
        found["calls"] = {name: spent / (2 * steps) for name, spent in costs.items()}
        if run.world.leads:
            self.out.write_text(json.dumps(found))
        run.total_steps = run.step
        return True

    def _timed(self, ours: bool) -> float:
        """Seconds of an epoch, from the moment all ranks begin to that when all have ended."""
        run = self.run
        with contextlib.nullcontext() if ours else self._supervisor_frozen():
            run.total_steps = run.step + run.steps_per_epoch + 1
            run.meter.begin()
            self._meet()
            began = time.perf_counter()
            if ours:
                self.engine(run)
                run.meter.flush()
            else:
                self.bare.epoch()
            self._meet()
            took = time.perf_counter() - began
        self.engine_s += took if ours else 0.0
        return took

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
        """Of this rank's reporting thread and of the supervisor, so far."""
        assert isinstance(self.run.reporter, Reporter)
        thread = self.run.reporter.thread.ident
        assert thread is not None
        times = psutil.Process(int(os.environ["DISTRAIN_SUPERVISOR"])).cpu_times()
        reporter = time.clock_gettime(time.pthread_getcpuclockid(thread))
        return reporter, times.user + times.system

    def _on_cuda(self) -> dict[str, Any]:
        if self.run.world.device.type != "cuda":
            return {}
        steps = self.run.steps_per_epoch
        found = {}
        for name, ours in (("ours", True), ("bare", False)):
            with synchronisations() as counts:
                self._timed(ours)
            found[name] = {call: count / steps for call, count in counts.items()}
        return {"synchronisations": found}


class Bare:
    """The same training as a person writes it without us: model, data, optimizer, no more.

    Alone it trains the run's own model, for where weights lie in memory is worth more than what
    is looked for. Two DDPs cannot share one: there it has `spare`, of the same weights.
    """

    def __init__(self, run: Training, spare: nn.Module) -> None:
        train, world, device = run.config.train, run.world, run.world.device
        self.device, self.finish = device, run.task.finish
        self.dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(run.plan.precision)
        self.model, self.optimizer = run.model, run.optimizer
        if run.config.strategy == "ddp":
            ids = [device.index] if device.type == "cuda" else None
            self.model = DistributedDataParallel(
                spare.to(device), device_ids=ids, gradient_as_bucket_view=True
            )
            self.optimizer = torch.optim.SGD(
                self.model.parameters(), lr=run.plan.lr, momentum=train.momentum, fused=True
            )
        self.loader = DataLoader(
            run.task.train,
            batch_sampler=Shares(run.samples, train.batch_size, world.size, world.rank),
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
    """A new permutation in each epoch, and of each global batch this rank's consecutive part."""

    def __init__(self, samples: int, batch_size: int, ranks: int, rank: int) -> None:
        self.samples, self.batch_size = samples, batch_size
        sizes = share(batch_size, ranks)
        self.start, self.size = sum(sizes[:rank]), sizes[rank]

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(self.samples).tolist()
        for begin in range(self.start, self.samples, self.batch_size):
            yield order[begin : begin + self.size]
