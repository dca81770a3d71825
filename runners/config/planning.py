"""How the plan of a run follows from its config and the facts of a host."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from distrain.runners.config.constraints import broken_constraints, scheduler_problems
from distrain.runners.config.device_choice import choose_devices, needs_gpus
from distrain.runners.config.plan import TIMELINE, Arithmetic, Plan, share
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError
from distrain.runners.system.devices import Device
from distrain.runners.system.host import Host
from distrain.runners.system.network import choose_interface
from distrain.runners.system.scheduler_env import ScheduledRank

# Variables of Horovod that the config decides, unless they are set in the environment.
HOROVOD_DECIDES = re.compile("HOROVOD_(CYCLE_TIME|FUSION_THRESHOLD|GLOO_TIMEOUT|STALL_|TIMELINE$)")

MOST_RANKS = 1_000_000
OMP_THREADS = "OMP_NUM_THREADS"


def plan_here(config: RunConfig, devices: list[Device] | None = None) -> Plan:
    """Make the plan of a config for this host; parameters and errors as those of `make_plan`."""
    return make_plan(config, host_for(config), devices)


def host_for(config: RunConfig) -> Host:
    """Gather the facts of this host that the plan of a config depends on."""
    return Host.here(gpus=needs_gpus(config), interfaces=_needs_interfaces(config))


def make_plan(config: RunConfig, host: Host, devices: list[Device] | None = None) -> Plan:
    """Make the plan of a config for a host, from nothing but these arguments.

    `devices` replaces the choice by `config.devices`. Raises ConfigError with all problems of the
    combination.
    """
    if config.launcher == "env" and (problems := scheduler_problems(config, host.environment)):
        raise ConfigError(problems)
    if devices is None:
        devices = choose_devices(config, host)
    nodes = config.slurm.nodes if config.launcher == "slurm" else config.dist.nodes
    world_size = _world_size(config, host, nodes * len(devices))
    if world_size > MOST_RANKS:
        raise ConfigError(
            f"{world_size:,} ranks are too many; distrain starts up to {MOST_RANKS:,}"
        )
    if problems := broken_constraints(config, host, devices, nodes, world_size):
        raise ConfigError(problems)
    if config.is_script:
        return _script_plan(config, host, devices, nodes, world_size)
    on_gpu = devices[0].kind == "cuda"
    precision = _precision(config, on_gpu)
    batch = share(config.train.batch_size, world_size)
    return Plan(
        world_size=world_size,
        nodes=nodes,
        devices=devices,
        batch=batch,
        micro_batch=-(-batch[0] // config.train.accumulate),
        loader_workers=share(config.data.workers, world_size),
        threads=config.train.threads or _threads(config, host, -(-world_size // nodes)),
        lr=config.train.lr * (world_size if config.train.scale_lr else 1),
        precision=precision,
        backend=_backend(config, on_gpu),
        notices=_notices(config, host, devices, precision),
        scheduled=config.launcher == "slurm",
        tasks=config.launcher == "env",
    )


def observed_plan(config: RunConfig, world_size: int, local_size: int) -> Plan:
    """Return the plan of a program that runs already, of whose ranks `local_size` are here.

    `devices` are the GPUs that it can see; which of them it uses is not known.
    """
    host = host_for(config)
    gpus = host.gpus.devices if host.gpus and not host.gpus.problem else []
    return Plan(
        world_size=world_size,
        devices=gpus or [Device(kind="cpu", index=index) for index in range(local_size)],
        threads=_script_threads(config, host, local_size),
        backend="",
        observed=True,
    )


def _script_plan(
    config: RunConfig, host: Host, devices: list[Device], nodes: int, world_size: int
) -> Plan:
    """Return the plan of a script: how many ranks on which devices, and nothing else."""
    return Plan(
        world_size=world_size,
        nodes=nodes,
        devices=devices,
        threads=_script_threads(config, host, -(-world_size // nodes)),
        backend="horovod" if config.launcher == "horovodrun" else "",
        notices=_placement_notices(config, host, devices),
        scheduled=config.launcher == "slurm",
        tasks=config.launcher == "env",
    )


def _script_threads(config: RunConfig, host: Host, ranks: int) -> int:
    """Return the threads that torch will use in each rank of a script.

    It takes all cores, but torchrun sets one for each of several ranks.
    """
    wanted = config.script.env.get(OMP_THREADS) or host.environment.get(OMP_THREADS, "")
    if wanted.isdecimal() and int(wanted):
        return int(wanted)
    if config.launcher == "slurm":
        return config.slurm.cpus_per_task or 1
    return 1 if ranks > 1 else host.cores


def _needs_interfaces(config: RunConfig) -> bool:
    return _chooses_interface(config) or bool(config.dist.interface and config.launcher != "slurm")


def _chooses_interface(config: RunConfig) -> bool:
    """Return whether the interface of the ranks is known in advance: they are all on this host."""
    is_here = config.launcher not in ("slurm", "env") and config.dist.nodes == 1
    return is_here and not config.is_one_process


def _world_size(config: RunConfig, host: Host, devices: int) -> int:
    if config.is_one_process:
        return 1
    if config.launcher == "env":
        return ScheduledRank.of(host.environment).world_size
    return devices


def _threads(config: RunConfig, host: Host, ranks: int) -> int:
    """Return the threads of each rank if `ranks` share a host."""
    if config.launcher == "slurm":  # the cores of its hosts are not known here
        return config.slurm.cpus_per_task or 1
    if config.launcher == "env":
        ranks = ScheduledRank.of(host.environment).local_size
    return max(1, host.cores // ranks)


def _precision(config: RunConfig, on_gpu: bool) -> Arithmetic:
    if config.precision == "auto":
        return "fp16" if on_gpu else "bf16"
    return config.precision


def _backend(config: RunConfig, on_gpu: bool) -> str:
    if config.is_one_process:
        return "none"
    if config.launcher == "horovodrun" or config.strategy == "horovod":
        return "horovod"
    if config.dist.backend != "auto":
        return config.dist.backend
    return "nccl" if on_gpu and not config.oversubscribe else "gloo"


def _notices(
    config: RunConfig, host: Host, devices: Sequence[Device], precision: Arithmetic
) -> list[str]:
    notices = []
    if config.strategy == "dp" and len(devices) < 2:
        notices.append(
            "nothing is parallel: nn.DataParallel has fewer than two GPUs here and passes "
            "every batch through to one device"
        )
    notices += _placement_notices(config, host, devices)
    if precision == "fp16" and devices[0].kind == "cpu":
        notices.append("fp16 on CPU is emulated and slow; bf16 is the format for CPUs")
    return notices


def _placement_notices(config: RunConfig, host: Host, devices: Sequence[Device]) -> list[str]:
    """Return what a person should know of where the ranks run and how they communicate."""
    notices = []
    on_cpu = devices[0].kind == "cpu"
    if on_cpu and config.launcher != "slurm" and len(devices) > host.cores:
        notices.append(
            f"{len(devices)} ranks share {host.cores} CPU cores and will wait for each other"
        )
    if config.launcher == "horovodrun":
        notices += _horovod_notices(config, host.environment)
    if _chooses_interface(config):
        choice = choose_interface(
            config.dist.interface,
            interfaces=host.interfaces or {},
            environment=host.environment,
        )
        if choice.why:
            notices.append(choice.why)
    return notices


def _horovod_notices(config: RunConfig, environment: Mapping[str, str]) -> list[str]:
    preset = [
        name for name in sorted(environment) if HOROVOD_DECIDES.match(name) and environment[name]
    ]
    notices = [
        f"{name}={environment[name]} of the environment wins over the config" for name in preset
    ]
    if config.horovod.timeline and "HOROVOD_TIMELINE" not in preset:
        notices.append(f"Horovod's timeline is written to {TIMELINE} in the run's folder")
    return notices
