"""Which choices of a RunConfig cannot be combined on given devices, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distrain.runners import formatting
from distrain.runners.config import sbatch_options
from distrain.runners.config.field_types import ONE_PROCESS
from distrain.runners.config.schema import RunConfig
from distrain.runners.protocol.client import is_address
from distrain.runners.system import scheduler_env
from distrain.runners.system.devices import Device, has_device_for
from distrain.runners.system.host import Host
from distrain.runners.system.network import missing_interfaces
from distrain.runners.system.scheduler_env import ScheduledRank

MOST_WORKERS_PER_RANK = 512
Rule = tuple[bool, str, str]
"""Whether it is broken, the key of the config, and why that cannot run."""


def broken_constraints(
    config: RunConfig, host: Host, devices: Sequence[Device], nodes: int, world_size: int
) -> list[tuple[str, str]]:
    """Return (key, reason) of all that cannot run.

    `host` is where the run starts, `devices` are those of each of the `nodes`.
    """
    rules = [
        *_host_rules(config, host, nodes),
        *_launcher_rules(config, world_size),
        *_device_rules(config, host, devices),
    ]
    if config.is_script:
        rules += _script_rules(config, devices)
    else:
        rules += _arithmetic_rules(config, devices)
        rules += _training_rules(config, world_size)
        rules += _strategy_rules(config, devices)
    return [(key, reason) for is_broken, key, reason in rules if is_broken]


def scheduler_problems(config: RunConfig, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (key, reason) of what keeps launcher env from finding its rank and the others."""
    method = config.dist.init_method
    problems = []
    if found := scheduler_env.problems(environment, method):
        text = f"env reads each rank's position from its environment: {'; '.join(found)}"
        problems.append(("launcher", text))
    if problem := scheduler_env.init_method_problem(method):
        problems.append(("dist.init_method", problem))
    return problems


def _host_rules(config: RunConfig, host: Host, nodes: int) -> list[Rule]:
    dist = config.dist
    strategy = config.strategy
    launcher = config.launcher
    lacking = ""
    if dist.interface and launcher != "slurm":
        lacking = missing_interfaces(dist.interface, host.interfaces or {})
    return [
        (
            dist.nodes > 1 and launcher not in ("torchrun", "horovodrun"),
            "dist.nodes",
            "the nodes of a Slurm job are slurm.nodes"
            if launcher == "slurm"
            else f"{launcher} starts the ranks of one host; several need torchrun or horovodrun",
        ),
        (
            nodes > 1 and strategy in ONE_PROCESS,
            "slurm.nodes" if launcher == "slurm" else "dist.nodes",
            f"{strategy} is one process on one host; use ddp or allreduce",
        ),
        (
            dist.node_rank is not None and dist.node_rank >= dist.nodes,
            "dist.node_rank",
            f"{formatting.plural(dist.nodes, 'host')} count from 0, there is no {dist.node_rank}",
        ),
        (
            dist.rendezvous is not None and not is_address(dist.rendezvous),
            "dist.rendezvous",
            f"{dist.rendezvous!r} is not HOST:PORT",
        ),
        (
            bool(dist.node_rank) and dist.rendezvous is None,
            "dist.rendezvous",
            "a host that joins needs HOST:PORT of host 0",
        ),
        (bool(lacking), "dist.interface", lacking),
        (
            dist.init_method is not None and launcher != "env",
            "dist.init_method",
            f"it is for launcher env; the ranks of {launcher} meet without it",
        ),
        (
            launcher == "env"
            and strategy in ONE_PROCESS
            and ScheduledRank.of(host.environment).world_size > 1,
            "strategy",
            f"{strategy} is one process, but WORLD_SIZE is larger; use ddp or allreduce",
        ),
    ]


def _launcher_rules(config: RunConfig, world_size: int) -> list[Rule]:
    strategy = config.strategy
    launcher = config.launcher
    one_process = strategy in ONE_PROCESS
    return [
        (
            launcher == "inline" and world_size > 1,
            "launcher",
            f"inline starts one process; {strategy} on {world_size} devices needs spawn or "
            "torchrun",
        ),
        (
            strategy == "horovod" and launcher not in ("horovodrun", "slurm"),
            "launcher",
            f"{launcher} does not start the ranks of horovod; use horovodrun or slurm",
        ),
        (
            strategy in (*ONE_PROCESS, "allreduce", "ddp") and launcher == "horovodrun",
            "launcher",
            f"horovodrun starts the ranks of horovod; {strategy} needs "
            f"{'inline' if one_process else 'torchrun or spawn'}",
        ),
        (
            config.dist.nodes > 1 and launcher == "horovodrun" and config.horovod.via != "distrain",
            "horovod.via",
            f"{config.horovod.via} starts the ranks of one host here; several need distrain",
        ),
        (
            launcher == "slurm" and config.slurm.via == "torchrun" and strategy == "horovod",
            "slurm.via",
            'torchrun does not start the ranks of horovod; use slurm.via = "srun"',
        ),
        *(
            (launcher == "slurm", "slurm.extra", text)
            for text in sbatch_options.problems(config.slurm.extra)
        ),
        (
            bool(config.dist.max_restarts) and launcher != "torchrun",
            "dist.max_restarts",
            f"only torchrun restarts ranks; {launcher} does not",
        ),
    ]


def _script_rules(config: RunConfig, devices: Sequence[Device]) -> list[Rule]:
    launcher = config.launcher
    return [
        (
            launcher == "spawn",
            "launcher",
            "spawn starts functions, not scripts; use inline for one process or torchrun",
        ),
        (
            launcher == "inline" and len(devices) > 1 and devices[0].kind == "cpu",
            "devices",
            f"inline starts one process; {len(devices)} CPU processes need torchrun",
        ),
    ]


def _device_rules(config: RunConfig, host: Host, devices: Sequence[Device]) -> list[Rule]:
    strategy = config.strategy
    on_gpu = devices[0].kind == "cuda"
    lacks_device = False
    if config.launcher == "env":
        local_rank = ScheduledRank.of(host.environment).local_rank
        lacks_device = not has_device_for(list(devices), local_rank)
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
            lacks_device,
            "devices",
            f"LOCAL_RANK {host.environment.get('LOCAL_RANK')} has no GPU: "
            f"{_count_visible(len(devices))}, and each rank of a host needs its own",
        ),
        (
            on_gpu and _has_shared_gpu(devices) and not config.oversubscribe,
            "devices",
            "a GPU is listed twice; set oversubscribe = true to put two ranks on it",
        ),
    ]


def _count_visible(gpus: int) -> str:
    return f"{formatting.plural(gpus, 'GPU')} {'is' if gpus == 1 else 'are'} visible"


def _has_shared_gpu(devices: Sequence[Device]) -> bool:
    """Return whether a GPU is listed twice; those that Slurm will assign are not known yet."""
    uuids = [device.uuid for device in devices if device.uuid]
    return len(set(uuids)) < len(uuids)


def _uses_horovod(config: RunConfig) -> bool:
    """Return whether ranks reduce with Horovod: strategies of the user do so under horovodrun."""
    return config.strategy == "horovod" or config.launcher == "horovodrun"


def _arithmetic_rules(config: RunConfig, devices: Sequence[Device]) -> list[Rule]:
    backend = config.dist.backend
    on_gpu = devices[0].kind == "cuda"
    return [
        (
            config.precision == "tf32" and not on_gpu,
            "precision",
            "tf32 is a format of NVIDIA GPUs; on CPU use fp32 or bf16",
        ),
        (
            _uses_horovod(config) and backend != "auto",
            "dist.backend",
            f"{backend} is torch's; Horovod brings its own: leave it at auto",
        ),
        (
            backend == "nccl" and not on_gpu,
            "dist.backend",
            "nccl moves data between GPUs; on CPU use gloo",
        ),
        (
            backend == "nccl" and on_gpu and _has_shared_gpu(devices),
            "dist.backend",
            "nccl refuses two ranks on one GPU; use gloo",
        ),
    ]


def _training_rules(config: RunConfig, world_size: int) -> list[Rule]:
    train = config.train
    parts = formatting.plural(world_size, "rank")
    if train.accumulate > 1:
        parts += f" × {train.accumulate} micro-batches"
    return [
        (
            train.batch_size < world_size * train.accumulate,
            "train.batch_size",
            f"{train.batch_size} is smaller than {parts}: some ranks would get no samples",
        ),
        (
            config.data.workers > MOST_WORKERS_PER_RANK * world_size,
            "data.workers",
            f"{config.data.workers:,} loader processes are too many for "
            f"{formatting.plural(world_size, 'rank')}; each has at most {MOST_WORKERS_PER_RANK}",
        ),
        (
            train.schedule == "onecycle" and train.warmup_epochs > 0,
            "train.warmup_epochs",
            "the schedule onecycle begins with a rise of its own",
        ),
        (
            train.patience is not None
            and not (config.eval.every_epochs or config.eval.every_steps),
            "train.patience",
            "it counts evaluations, and there is only one at the end; set eval.every_epochs",
        ),
    ]


def _strategy_rules(config: RunConfig, devices: Sequence[Device]) -> list[Rule]:
    train = config.train
    strategy = config.strategy
    on_gpu = devices[0].kind == "cuda"
    return [
        (
            train.ema is not None and train.swa_share is not None,
            "train.swa_share",
            "the weights are averaged in one way; unset train.ema or train.swa_share",
        ),
        (
            train.sync_batchnorm
            and (not on_gpu or strategy in ONE_PROCESS or _uses_horovod(config)),
            "train.sync_batchnorm",
            "SyncBatchNorm needs GPUs and a process group (ddp or allreduce)",
        ),
        (
            train.channels_last and _uses_horovod(config),
            "train.channels_last",
            "Horovod reduces contiguous tensors only; those in NHWC layout are not contiguous",
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
            strategy == "ddp"
            and config.ddp.comm_hook == "powerSGD"
            and config.ddp.find_unused_parameters,
            "ddp.comm_hook",
            "PowerSGD divides by the norm of each gradient, which is 0 for an unused parameter; "
            "use fp16_compress",
        ),
        (
            strategy == "ddp" and config.ddp.comm_hook == "bf16_compress" and not on_gpu,
            "ddp.comm_hook",
            "bf16_compress needs GPUs and nccl; on CPU use fp16_compress or none",
        ),
        (
            strategy == "ddp" and config.ddp.static_graph and train.accumulate > 1,
            "ddp.static_graph",
            "static_graph expects a reduction in every backward; train.accumulate > 1 skips some",
        ),
    ]
