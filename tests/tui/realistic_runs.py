"""Runs that look real, and the same on every machine at any time."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from distrain.runners.protocol.events import (
    GPUS_PER_HOST,
    GpuSample,
    HostSample,
    RankSample,
    Saved,
    Window,
)
from distrain.runners.records.state import RunError
from distrain.runners.system.devices import Device
from distrain.runners.verification.result import VerificationCheck, VerificationResult
from distrain.tui.data.verification_feed import VerificationEntry
from tests.support.records import RunBuilder

NOW = 1_790_000_000.0  # 2026-09-21 14:13:20 UTC
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
GIB = 2.0**30


class Clock:
    """A clock that does not run; set it back to launch runs in the past."""

    def __init__(self) -> None:
        self.now = NOW

    def time(self) -> float:
        return self.now


def freeze(patch: pytest.MonkeyPatch) -> Clock:
    """Replace everything that differs between machines, days and terminals."""
    clock, numbers = Clock(), count()

    def new_run_id(word: str, now: float) -> str:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
        return f"{stamp}-{word}-{zlib.crc32(b'%d' % next(numbers)) & 0xFFFF:04x}"

    patch.setattr(time, "time", clock.time)
    patch.setattr("distrain.runners.records.folder.new_run_id", new_run_id)
    patch.setattr("distrain.runners.bench.folder.new_run_id", new_run_id)
    patch.setattr("socket.gethostname", lambda: "trainer")
    patch.setattr("distrain.runners.system.host.count_cores", lambda: 16)
    patch.setattr("distrain.tui.data.run_feed.process_name", lambda pid: "python3")
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "DISTRAIN_RUNS_DIR"):
        patch.delenv(name, raising=False)
    patch.setenv("CUDA_VISIBLE_DEVICES", "")
    patch.setenv("DISTRAIN_CONFIG_DIR", "config")
    patch.setenv("TZ", "UTC")
    time.tzset()
    return clock


def gpus(number: int, name: str = "NVIDIA H200") -> list[Device]:
    return [
        Device(kind="cuda", index=index, uuid=f"GPU-{index:04}", name=name)
        for index in range(number)
    ]


class RealisticRun(RunBuilder):
    """A run with noisy curves, in which the last rank is a straggler."""

    def __init__(self, *where: Any, **how: Any) -> None:
        super().__init__(*where, ago=0, **how)

    def train(self, steps: int, worst: float = 2.3) -> RealisticRun:
        """Add steps, with an evaluation and a best checkpoint after each second epoch."""
        while steps > 0:
            self.steps(min(steps, 20), lambda step: worst / (1 + step / 40))
            steps -= 20
            if self.step % 20 == 0:
                right = 1 - 0.9 / (1 + self.step / 25)
                self.evaluation(top1=right, top5=(1 + right) / 2, loss=worst / (1 + self.step / 50))
                self.saved()
        return self

    def saved(self) -> None:
        path = f"checkpoints/step-{self.step:08}.pt"
        self.writer.add(
            Saved(
                time=self.now,
                epoch=self.step // 10,
                step=self.step,
                path=path,
                seconds=0.1,
                bytes=104_857,
                best=True,
            )
        )
        (self.dir / path).touch()
        last = self.dir / "checkpoints" / "last.pt"
        last.unlink(missing_ok=True)
        last.symlink_to(Path(path).name)

    def window(self, rank: int, loss: float) -> Window:
        chance = Random(f"{self.step} {rank}")
        smooth = super().window(rank, loss * chance.uniform(0.85, 1.15))
        late = 0.018 if self.world > 1 and rank == self.world - 1 else 0.0
        compute = 0.05 + late + chance.uniform(0, 0.004)
        return msgspec.structs.replace(
            smooth,
            loss_min=loss * 0.7,
            loss_max=loss * chance.uniform(1.3, 1.6),
            lr=0.1 * (1 - self.step / 1000),
            seconds=smooth.seconds * chance.uniform(0.95, 1.05),
            data=chance.uniform(0.006, 0.01),
            forward=0.4 * compute,
            backward=0.6 * compute,
            comm=0.02 - late if self.world > 1 else 0.0,
        )

    # --- what the supervisor measures ---

    def samples(self) -> RealisticRun:
        """Add samples of hosts, processes and GPUs, twice per second for half a minute."""
        for tick in range(60):
            moment, chance = self.now - 30 + tick / 2, Random(tick)
            for host in range(len(self.hosts)):
                self.writer.add(
                    HostSample(
                        time=moment,
                        host=host,
                        cpu=chance.uniform(55, 90),
                        memory_used=(21.5 + host) * GIB,
                        memory_total=62.7 * GIB,
                        load=7.42,
                    )
                )
            for rank, device in enumerate(self.devices):
                self.writer.add(
                    RankSample(
                        time=moment,
                        rank=rank,
                        cpu=chance.uniform(80, 100),
                        rss=(0.6 + rank / 50) * GIB,
                        processes=3,
                    )
                )
                if device.kind == "cuda":
                    self.writer.add(self._gpu(device, rank, moment, chance))
        self.writer.commit()
        return self

    def _gpu(self, device: Device, rank: int, moment: float, chance: Random) -> GpuSample:
        return GpuSample(
            time=moment,
            gpu=GPUS_PER_HOST * (rank // self.each) + device.index,
            uuid=device.uuid,
            name=device.name,
            utilisation=round(chance.uniform(60, 99)),
            memory_used=(38 + rank) * GIB,
            memory_total=141 * GIB,
            power=400 + 30.0 * rank,
            temperature=50.0 + 2 * rank,
            sm_clock=1980.0,
            processes={1000 + rank: int((36 + rank) * GIB)}
            | ({99: int(2 * GIB)} if rank == 3 else {}),
        )

    def sample_with_nothing_but(self, **fields: Any) -> RealisticRun:
        """Add a sample of a GPU that reports nothing but these values."""
        device = self.devices[0]
        self.writer.add(
            GpuSample(time=self.now, gpu=0, uuid=device.uuid, name=device.name, **fields)
        )
        self.writer.commit()
        return self

    # --- how it ends ---

    def fail(self, rank: int, message: str) -> RealisticRun:
        """End with a ValueError of one rank; the others are secondary failures."""
        others = [other for other in range(self.world) if other != rank]
        trace = (
            "Traceback (most recent call last):\n"
            '  File "/home/me/digits/labels.py", line 31, in check\n'
            '    raise ValueError(f"a label is out of range: {label} of {classes} classes")\n'
            f"ValueError: {message}\n"
        )
        with (self.dir / "logs" / f"rank-{rank}.log").open("a") as log:
            log.write(trace)
        error = RunError(
            rank=rank,
            type="ValueError",
            message=message,
            traceback=trace,
            step=self.step,
            secondary=others,
        )
        self.end("failed", reason=f"rank {rank}: ValueError: {message}", error=error)
        return self

    def wait(self, *reasons: str) -> RealisticRun:
        """Put the run back into the queue."""
        self.writer.set_state(status="queued", started=None, facts=None, waiting_for=list(reasons))
        return self


def logs(folder: Path, ranks: Sequence[int], lines: int, last: str) -> None:
    """Write the logs of the ranks; the last line is the same for all of them."""
    for rank in ranks:
        steps = [f"step {step:>4}  loss {2.3 / step:.4f}" for step in range(1, lines)]
        text = "\n".join([f"rank {rank}: loaded 1,437 samples", *steps, last])
        (folder / "logs" / f"rank-{rank}.log").write_text(f"{text}\n")
    (folder / "logs" / "launcher.log").write_text("torchrun: rendezvous at 127.0.0.1:29500\n")


# --- verification ---------------------------------------------------------------------------------


def verified() -> list[VerificationEntry]:
    """Return presets with every outcome."""
    far = VerificationCheck(
        what="gradients", step=1, passed=False, tensor="1.weight", error=0.37, limit=9.9e-6
    )
    off = {"checks": [_close("gradients", 0.4), far], "strategy": "hand:ByHand"}
    dropped = (
        "random numbers in training (dropout) differ from rank to rank: the plain process draws "
        "those of each rank for its part"
    )
    return [
        VerificationEntry(
            _report("single", strategy="single", launcher="inline", world_size=1), "done"
        ),
        VerificationEntry(_report("ddp", declared=[dropped]), "done"),
        VerificationEntry(_report("by-hand", world_size=3, **off), "done"),
        VerificationEntry(
            _report("no-data", checks=[], problem="the run failed: no file digits.npz"), "done"
        ),
        VerificationEntry(_report("half", precision="fp16", checks=[], tolerance=""), "verifying"),
        VerificationEntry(_report("allreduce", strategy="allreduce", checks=[], tolerance="")),
    ]


def _report(preset: str, **fields: Any) -> VerificationResult:
    usual = {
        "strategy": "ddp",
        "launcher": "torchrun",
        "precision": "fp32",
        "world_size": 2,
        "checks": [_close("gradients", 0.1), _close("weights", 0.2)],
        "tolerance": "10 × the difference between two plain processes that differ only in "
        "rounding, measured for each tensor",
    }
    return VerificationResult(preset=preset, **(usual | fields))


def _close(what: str, share: float) -> VerificationCheck:
    """Return a check whose error is this share of its limit."""
    limit = 9.9e-6
    return VerificationCheck(
        what=what, step=3, passed=True, tensor="1.weight", error=share * limit, limit=limit
    )
