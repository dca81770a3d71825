"""What follows from a RunConfig on given devices: shares, threads, rates. Computed once, here.

The record keeps the plan, every screen shows it, and ranks do as it says.
"""

from __future__ import annotations

import os
import re
from typing import Literal

import msgspec

from runners import rendezvous
from runners.combinations import impossible
from runners.config import ONE_PROCESS, RunConfig
from runners.devices import Device, devices_for
from runners.errors import ConfigError
from runners.network import sockets

TIMELINE = "horovod-timeline.json"
# Variables of Horovod's that the config decides, unless a person has set them.
HOROVOD_DECIDES = re.compile("HOROVOD_(CYCLE_TIME|FUSION_THRESHOLD|GLOO_TIMEOUT|STALL_|TIMELINE$)")
Arithmetic = Literal["fp32", "tf32", "bf16", "fp16"]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The effective figures of a run; lists are indexed by rank.

    `devices` are those of each host, by local rank, and `nodes` is the number of hosts. `batch`
    is samples per rank of a full step, `micro_batch` the largest piece of it that goes through
    the model at once, `loader_workers` loader processes, `threads` CPU threads of each rank, `lr`
    the rate after warm-up and scaling, `precision` never "auto". Under `dp` one rank drives all
    `devices`. Of a plan that is `scheduled` hosts and devices are a scheduler's to give; of one of
    `tasks` each rank is started by itself, on hosts that are not known before.
    """

    world_size: int
    nodes: int = 1
    devices: list[Device]
    batch: list[int]
    micro_batch: int
    loader_workers: list[int]
    threads: int
    lr: float
    precision: Arithmetic
    backend: str
    notices: list[str] = []
    scheduled: bool = False
    tasks: bool = False

    @property
    def spread(self) -> bool:
        """Whether ranks may be on other hosts than the first."""
        return self.nodes > 1 or self.tasks

    @property
    def ranks_per_node(self) -> int:
        return self.world_size // self.nodes


def share(total: int, parts: int) -> list[int]:
    """`total` things over `parts` ranks; the remainder goes to the lowest ranks."""
    least, rest = divmod(total, parts)
    return [least + (part < rest) for part in range(parts)]


def make_plan(config: RunConfig, devices: list[Device] | None = None) -> Plan:
    """Work out the plan; raises ConfigError with all problems of the combination.

    `devices` replaces the choice by `config.devices`, for tests and for resuming elsewhere.
    """
    if config.launcher == "env" and (problems := rendezvous.problems(config)):
        raise ConfigError(problems)
    chosen = devices if devices is not None else devices_for(config)
    nodes = config.slurm.nodes if config.launcher == "slurm" else config.dist.nodes
    world = 1 if config.strategy in ONE_PROCESS else _ranks(config, nodes * len(chosen))
    if problems := impossible(config, chosen, nodes, world):
        raise ConfigError(problems)
    on_gpu = chosen[0].kind == "cuda"
    precision = _precision(config, on_gpu)
    batch = share(config.train.batch_size, world)
    return Plan(
        world_size=world,
        nodes=nodes,
        devices=chosen,
        batch=batch,
        micro_batch=-(-batch[0] // config.train.accumulate),
        loader_workers=share(config.data.workers, world),
        threads=config.train.threads or _threads(config, -(-world // nodes)),
        lr=config.train.lr * (world if config.train.scale_lr else 1),
        precision=precision,
        backend=_backend(config, on_gpu),
        notices=_notices(config, chosen, precision),
        scheduled=config.launcher == "slurm",
        tasks=config.launcher == "env",
    )


def one_of_many(plan: Plan) -> Plan:
    """The plan of a run of a bench or check; raises ConfigError where hosts would have to join."""
    if plan.spread and plan.world_size > 1 and not plan.scheduled:
        key = "launcher" if plan.tasks else "dist.nodes"
        raise ConfigError([(key, "hosts join a single run, not those of a bench or check")])
    return plan


def _ranks(config: RunConfig, devices: int) -> int:
    return rendezvous.Task.here().world_size if config.launcher == "env" else devices


def _threads(config: RunConfig, ranks: int) -> int:
    """Of each rank, where `ranks` share a host; what a host of Slurm's has is not known here."""
    if config.launcher == "slurm":
        return config.slurm.cpus_per_task or 1
    if config.launcher == "env":
        ranks = rendezvous.Task.here().local_size
    return max(1, cores() // ranks)


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _precision(config: RunConfig, on_gpu: bool) -> Arithmetic:
    if config.precision == "auto":
        return "fp16" if on_gpu else "bf16"
    return config.precision


def _backend(config: RunConfig, on_gpu: bool) -> str:
    if config.strategy in ONE_PROCESS:
        return "none"
    if config.launcher == "horovodrun" or config.strategy == "horovod":
        return "horovod"
    if config.dist.backend != "auto":
        return config.dist.backend
    return "nccl" if on_gpu and not config.oversubscribe else "gloo"


def _notices(config: RunConfig, devices: list[Device], precision: Arithmetic) -> list[str]:
    notices = []
    if config.strategy == "dp" and len(devices) < 2:
        notices.append(
            "nothing is parallel: nn.DataParallel has fewer than two GPUs here and passes "
            "every batch through to one device"
        )
    if devices[0].kind == "cpu" and config.launcher != "slurm" and len(devices) > cores():
        notices.append(
            f"{len(devices)} ranks share {cores()} CPU cores and will wait for each other"
        )
    if config.launcher == "horovodrun":
        notices += _horovod_notices(config)
    alone = config.strategy in ONE_PROCESS
    if config.launcher not in ("slurm", "env") and config.dist.nodes == 1 and not alone:
        notices += filter(None, [sockets(config.dist.interface).why])
    if precision == "fp16" and devices[0].kind == "cpu":
        notices.append("fp16 on CPU is emulated and slow; bf16 is the format for CPUs")
    return notices


def _horovod_notices(config: RunConfig) -> list[str]:
    set_ = [name for name in sorted(os.environ) if HOROVOD_DECIDES.match(name) and os.environ[name]]
    notices = [
        f"{name}={os.environ[name]} of the environment wins over the config" for name in set_
    ]
    if config.horovod.timeline and "HOROVOD_TIMELINE" not in set_:
        notices.append(f"Horovod's timeline is written to {TIMELINE} in the run's folder")
    return notices
