"""Which choices of a RunConfig cannot go together on given devices, and why."""

from __future__ import annotations

import os

from runners import rendezvous, words
from runners.config import ONE_PROCESS, RunConfig
from runners.connecting import is_place
from runners.devices import Device, usable
from runners.network import missing
from runners.slurm import extra

Rule = tuple[bool, str, str]
"""Whether it is broken, the key of the config, and why that cannot run."""


def impossible(
    config: RunConfig, devices: list[Device], nodes: int, world: int
) -> list[tuple[str, str]]:
    """The keys of what cannot run on these devices of each of so many nodes, each with why."""
    rules = [
        *_of_hosts(config, nodes),
        *_of_launchers(config, world),
        *_of_devices(config, devices),
        *_of_arithmetic(config, devices),
        *_of_training(config, devices, world),
    ]
    return [(key, text) for broken, key, text in rules if broken]


def _of_hosts(config: RunConfig, nodes: int) -> list[Rule]:
    dist, strategy, launcher = config.dist, config.strategy, config.launcher
    lacks = missing(dist.interface) if dist.interface and launcher != "slurm" else ""
    return [
        (
            dist.nodes > 1 and launcher not in ("torchrun", "horovodrun"),
            "dist.nodes",
            "the nodes of a job are slurm.nodes"
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
            dist.init_method is not None and launcher != "env",
            "dist.init_method",
            f"with {launcher} ranks meet by themselves; it is for launcher env",
        ),
        (
            launcher == "env" and strategy in ONE_PROCESS and rendezvous.Task.here().world_size > 1,
            "strategy",
            f"{strategy} is one process, and WORLD_SIZE says more; use ddp or allreduce",
        ),
    ]


def _of_launchers(config: RunConfig, world: int) -> list[Rule]:
    strategy, launcher = config.strategy, config.launcher
    return [
        (
            launcher == "inline" and world > 1,
            "launcher",
            f"inline starts one process, {strategy} on {world} devices needs spawn or torchrun",
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
            + ("inline" if strategy in ONE_PROCESS else "torchrun or spawn"),
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
            for text in extra.problems(config.slurm.extra)
        ),
        (
            bool(config.dist.max_restarts) and launcher != "torchrun",
            "dist.max_restarts",
            f"only torchrun starts ranks anew, {launcher} does not",
        ),
    ]


def _of_devices(config: RunConfig, devices: list[Device]) -> list[Rule]:
    strategy, on_gpu = config.strategy, devices[0].kind == "cuda"
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
            config.launcher == "env" and not usable(devices, rendezvous.Task.here().local_rank),
            "devices",
            f"{words.things(len(devices), 'GPU')} and LOCAL_RANK "
            f"{os.environ.get('LOCAL_RANK')}: each rank of a host needs its own",
        ),
        (
            on_gpu and _shared(devices) and not config.oversubscribe,
            "devices",
            "a GPU is listed twice; set oversubscribe = true to put two ranks on it",
        ),
    ]


def _shared(devices: list[Device]) -> bool:
    """Whether one is there twice; those that Slurm will give are not known yet."""
    uuids = [device.uuid for device in devices if device.uuid]
    return len(set(uuids)) < len(uuids)


def _of_arithmetic(config: RunConfig, devices: list[Device]) -> list[Rule]:
    backend, on_gpu = config.dist.backend, devices[0].kind == "cuda"
    return [
        (
            config.precision == "tf32" and not on_gpu,
            "precision",
            "tf32 is a format of NVIDIA GPUs; on CPU use fp32 or bf16",
        ),
        (
            config.launcher == "horovodrun" and backend != "auto",
            "dist.backend",
            f"{backend} is torch's; Horovod brings its own: leave it at auto",
        ),
        (
            backend == "nccl" and not on_gpu,
            "dist.backend",
            "nccl moves data between GPUs; on CPU use gloo",
        ),
        (
            backend == "nccl" and on_gpu and _shared(devices),
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
