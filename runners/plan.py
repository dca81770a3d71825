"""What follows from a RunConfig on given devices: shares, threads, rates. Computed once, here.

The record keeps the plan, every screen shows it, and ranks do as it says.
"""

from __future__ import annotations

import os
import re
from typing import Literal

import msgspec

from runners import rendezvous, words
from runners.config import ONE_PROCESS, RunConfig
from runners.connecting import is_place
from runners.devices import Device, devices_for, usable
from runners.errors import ConfigError
from runners.network import missing, sockets

TIMELINE = "horovod-timeline.json"
# Variables of Horovod's that the config decides, unless a person has set them.
HOROVOD_DECIDES = re.compile("HOROVOD_(CYCLE_TIME|FUSION_THRESHOLD|GLOO_TIMEOUT|STALL_|TIMELINE$)")
Arithmetic = Literal["fp32", "tf32", "bf16", "fp16"]
Rule = tuple[bool, str, str]
"""Whether it is broken, the key of the config, and why that cannot run."""


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
    nodes = nodes_of(config)
    world = 1 if config.strategy in ONE_PROCESS else _ranks(config, nodes * len(chosen))
    if problems := _impossible(config, chosen, world):
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


def beginning_alone(plan: Plan) -> Plan:
    """The plan of a run that others begin one after another; raises ConfigError where hosts would
    have to be told of each.
    """
    if plan.nodes > 1 and not plan.scheduled:
        raise ConfigError(
            [("dist.nodes", "hosts join a single run, not those of a bench or check")]
        )
    return plan


def nodes_of(config: RunConfig) -> int:
    """How many hosts a run has, as far as its config knows."""
    return config.slurm.nodes if config.launcher == "slurm" else config.dist.nodes


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


def _impossible(config: RunConfig, devices: list[Device], world: int) -> list[tuple[str, str]]:
    """Combinations that cannot run, each with the reason."""
    rules = [
        *_of_hosts(config),
        *_of_devices(config, devices, world),
        *_of_training(config, devices, world),
    ]
    return [(key, text) for broken, key, text in rules if broken]


def _of_hosts(config: RunConfig) -> list[Rule]:
    dist, launcher, alone = config.dist, config.launcher, config.strategy in ONE_PROCESS
    lacks = missing(dist.interface) if dist.interface and launcher != "slurm" else ""
    return [
        (
            dist.nodes > 1 and launcher not in ("torchrun", "horovodrun"),
            "dist.nodes",
            f"{launcher} starts the ranks of one host; several need torchrun or horovodrun"
            + (", or slurm.nodes" if launcher == "slurm" else ""),
        ),
        (
            nodes_of(config) > 1 and alone,
            "slurm.nodes" if launcher == "slurm" else "dist.nodes",
            f"{config.strategy} is one process on one host; use ddp or allreduce",
        ),
        (
            dist.node_rank is not None and dist.node_rank >= dist.nodes,
            "dist.node_rank",
            f"{words.things(dist.nodes, 'host')} count from 0, there is no {dist.node_rank}",
        ),
        (
            dist.rendezvous is not None and not is_place(dist.rendezvous),
            "dist.rendezvous",
            f"{dist.rendezvous!r} is not HOST:PORT",
        ),
        (
            bool(dist.node_rank) and dist.rendezvous is None,
            "dist.rendezvous",
            "a host that joins must know where: HOST:PORT of host 0",
        ),
        (bool(lacks), "dist.interface", lacks),
        (
            dist.nodes > 1 and launcher == "horovodrun" and config.horovod.via != "distrain",
            "horovod.via",
            f"{config.horovod.via} starts the ranks of one host here; several need distrain",
        ),
        (
            bool(dist.max_restarts) and launcher != "torchrun",
            "dist.max_restarts",
            f"only torchrun starts ranks anew, {launcher} does not",
        ),
        (
            dist.init_method is not None and launcher != "env",
            "dist.init_method",
            f"with {launcher} ranks meet by themselves; it is for launcher env",
        ),
        (
            launcher == "env" and alone and rendezvous.Task.here().world_size > 1,
            "strategy",
            f"{config.strategy} is one process, and WORLD_SIZE says more; use ddp or allreduce",
        ),
        (
            launcher == "slurm" and config.slurm.via == "torchrun" and config.strategy == "horovod",
            "slurm.via",
            'torchrun does not start the ranks of horovod; use slurm.via = "srun"',
        ),
    ]


def _of_devices(config: RunConfig, devices: list[Device], world: int) -> list[Rule]:
    strategy, on_gpu = config.strategy, devices[0].kind == "cuda"
    uuids = [device.uuid for device in devices if device.uuid]  # Slurm gives some yet unknown
    return [
        (
            strategy == "single" and len(devices) > 1,
            "devices",
            f"single trains on one device and got {len(devices)}; use ddp, allreduce or dp",
        ),
        (
            strategy == "dp" and not on_gpu and len(devices) > 1,
            "devices",
            f"dp is one process and cannot use {len(devices)} CPU processes; use cpu:1 or ddp",
        ),
        (
            config.launcher == "inline" and world > 1,
            "launcher",
            f"inline starts one process, {strategy} on {world} devices needs spawn or torchrun",
        ),
        (
            strategy == "horovod" and config.launcher not in ("horovodrun", "slurm"),
            "launcher",
            f"{config.launcher} does not start the ranks of horovod; use horovodrun or slurm",
        ),
        (
            strategy in ("single", "dp", "allreduce", "ddp") and config.launcher == "horovodrun",
            "launcher",
            f"horovodrun starts the ranks of horovod; {strategy} needs "
            + ("inline" if strategy in ONE_PROCESS else "torchrun or spawn"),
        ),
        (
            config.launcher == "horovodrun" and config.dist.backend != "auto",
            "dist.backend",
            f"{config.dist.backend} is torch's; Horovod brings its own: leave it at auto",
        ),
        (
            config.launcher == "env" and not usable(devices, rendezvous.Task.here().local_rank),
            "devices",
            f"{words.things(len(devices), 'GPU')} and LOCAL_RANK "
            f"{os.environ.get('LOCAL_RANK')}: each rank of a host needs its own",
        ),
        (
            config.precision == "tf32" and not on_gpu,
            "precision",
            "tf32 is a format of NVIDIA GPUs; on CPU use fp32 or bf16",
        ),
        (
            config.dist.backend == "nccl" and not on_gpu,
            "dist.backend",
            "nccl moves data between GPUs; on CPU use gloo",
        ),
        (
            len(set(uuids)) < len(uuids) and on_gpu and not config.oversubscribe,
            "devices",
            "a GPU is listed twice; set oversubscribe = true to put two ranks on it",
        ),
        (
            config.dist.backend == "nccl" and on_gpu and len(set(uuids)) < len(uuids),
            "dist.backend",
            "nccl refuses two ranks on one GPU; use gloo",
        ),
    ]


def _of_training(config: RunConfig, devices: list[Device], world: int) -> list[Rule]:
    train, strategy, on_gpu = config.train, config.strategy, devices[0].kind == "cuda"
    return [
        (
            train.batch_size < world * train.accumulate,
            "train.batch_size",
            f"{train.batch_size} is smaller than {words.things(world, 'rank')}"
            f"{f' × {train.accumulate} micro-batches' if train.accumulate > 1 else ''}: "
            "some would have nothing to do",
        ),
        (
            train.sync_batchnorm
            and (not on_gpu or strategy in ONE_PROCESS or config.launcher == "horovodrun"),
            "train.sync_batchnorm",
            "SyncBatchNorm needs GPUs and a process group (ddp or allreduce)",
        ),
        (
            train.channels_last and config.launcher == "horovodrun",
            "train.channels_last",
            "Horovod reduces contiguous tensors only, which those in NHWC layout are not",
        ),
        (
            train.compile and strategy == "dp",
            "train.compile",
            "nn.DataParallel copies the module in every step, which torch.compile cannot follow",
        ),
        (
            config.ddp.static_graph and config.ddp.find_unused_parameters,
            "ddp.find_unused_parameters",
            "static_graph already knows which parameters are used; set one of the two",
        ),
        (
            strategy == "ddp" and config.ddp.comm_hook == "bf16_compress" and not on_gpu,
            "ddp.comm_hook",
            "bf16_compress needs GPUs and nccl; on CPU use fp16_compress or none",
        ),
        (
            strategy == "ddp" and config.ddp.static_graph and train.accumulate > 1,
            "ddp.static_graph",
            "static_graph expects a reduction in every backward, which accumulate leaves out",
        ),
    ]


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
