"""The sections of a RunConfig that say how it is run: program, ranks, reports and cluster.

Each field's `Meta` is the one place of its description and range, as in `training_sections`.
"""

from __future__ import annotations

import os
from typing import Annotated, Literal

from msgspec import Meta

from distrain.runners.config.field_types import (
    END,
    LONGEST_S,
    MOST,
    Backend,
    Count,
    SlurmTime,
    Text,
)
from distrain.runners.config.validation import FORM, Section


class ScriptConfig(Section, frozen=True):
    """The user's own program, which runs in place of the training loop.

    Relative paths start from `code_dir` of the config, else from the folder of the launch.
    """

    path: Annotated[
        str | None,
        Meta(description="Program: a Python script (.py), or anything executable."),
    ] = None
    module: Annotated[
        Annotated[str, Meta(pattern=rf"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*{END}")] | None,
        Meta(
            description="Python module to run instead, as `python -m` does.",
            extra={FORM: 'the name of a module, e.g. "package.train"'},
        ),
    ] = None
    args: Annotated[list[str], Meta(description="Arguments of the program.")] = []  # noqa: RUF012
    env: Annotated[
        dict[str, str],
        Meta(description="Variables that are added to its environment; the record shows them."),
    ] = {}  # noqa: RUF012
    cwd: Annotated[
        str | None, Meta(description="Its working directory; unset: the folder of the launch.")
    ] = None
    auto: Annotated[
        bool,
        Meta(description="Observe steps, batches and phases of a Python script that uses torch."),
    ] = True

    @property
    def name(self) -> str:
        """The program as a person calls it: "train.py" or "package.train"."""
        return self.module or os.path.basename(self.path or "")

    @property
    def words(self) -> list[str]:
        """The program and its arguments, as they follow `distrain run`."""
        program = ["-m", self.module] if self.module else [self.path or ""]
        return [*program, *self.args]

    @property
    def is_python(self) -> bool:
        """Whether the program is Python code, which runs in the process of the rank."""
        return bool(self.module) or (self.path or "").endswith(".py")


class DistConfig(Section, frozen=True):
    backend: Annotated[
        Backend, Meta(description="Backend of the process group; auto: nccl on CUDA, gloo on CPU.")
    ] = "auto"
    timeout_s: Annotated[
        float,
        Meta(gt=0, le=LONGEST_S, description="Seconds that a collective waits for an absent rank."),
    ] = 300.0
    leader_timeout_s: Annotated[
        float,
        Meta(
            gt=0,
            le=LONGEST_S,
            description="Seconds that ranks wait for rank 0 to save or to merge metrics.",
        ),
    ] = 1800.0
    interface: Annotated[
        Text | None,
        Meta(description="Network interface of gloo and NCCL; unset: chosen by the route."),
    ] = None
    nodes: Annotated[
        int, Meta(ge=1, le=100_000, description="Hosts of the run (torchrun and horovodrun).")
    ] = 1
    node_rank: Annotated[
        Count | None,
        Meta(description="Number of this host: 0 starts the run, the others join it."),
    ] = None
    rendezvous: Annotated[
        Text | None,
        Meta(description="HOST:PORT of host 0, at which the others join; unset: it is printed."),
    ] = None
    join_timeout_s: Annotated[
        float, Meta(gt=0, le=LONGEST_S, description="Seconds that hosts wait for missing hosts.")
    ] = 600.0
    max_restarts: Annotated[
        int,
        Meta(
            ge=0, le=1000, description="How often torchrun restarts all ranks after one has died."
        ),
    ] = 0
    init_method: Annotated[
        Annotated[str, Meta(pattern=r"^(env|tcp|file)://")] | None,
        Meta(description="How ranks of launcher env meet: env://, tcp://HOST:PORT, file:///PATH."),
    ] = None


class DdpConfig(Section, frozen=True):
    bucket_mb: Annotated[
        float, Meta(gt=0, le=1e6, description="Size of a gradient bucket, MiB.")
    ] = 25.0
    static_graph: Annotated[
        bool, Meta(description="Promise that the graph is the same in every step.")
    ] = False
    gradient_as_bucket_view: Annotated[
        bool, Meta(description="Keep gradients in the buckets: less memory, no copy.")
    ] = True
    find_unused_parameters: Annotated[
        bool, Meta(description="Search the graph for parameters without a gradient in each step.")
    ] = False
    comm_hook: Annotated[
        Literal["none", "fp16_compress", "bf16_compress", "powerSGD"],
        Meta(description="Compression of gradients for communication."),
    ] = "none"
    powersgd_rank: Annotated[
        int, Meta(ge=1, le=MOST, description="Rank of the PowerSGD approximation.")
    ] = 2
    powersgd_start: Annotated[
        int, Meta(ge=2, le=MOST, description="Steps of plain all-reduce before compression starts.")
    ] = 10


class HorovodConfig(Section, frozen=True):
    via: Annotated[
        Literal["distrain", "horovodrun", "mpirun"],
        Meta(description="What starts the ranks: distrain, or the command of Horovod or MPI."),
    ] = "distrain"
    compression: Annotated[
        Literal["none", "fp16"], Meta(description="Compression of gradients for communication.")
    ] = "none"
    fusion_mb: Annotated[
        float,
        Meta(
            ge=0,
            le=1e6,
            description="Size up to which tensors are reduced together, MiB; 0: each alone.",
        ),
    ] = 128.0
    cycle_ms: Annotated[
        float, Meta(gt=0, le=1e3, description="Pause between two checks for ready tensors, ms.")
    ] = 1.0
    timeline: Annotated[
        bool, Meta(description="Record Horovod's timeline, for chrome://tracing or Perfetto.")
    ] = False


class ReportConfig(Section, frozen=True):
    window_s: Annotated[
        float, Meta(gt=0, le=LONGEST_S, description="Length of a reporting window, seconds.")
    ] = 0.1
    skip_steps: Annotated[
        int, Meta(ge=0, le=MOST, description="First steps that throughput leaves out (warm-up).")
    ] = 10
    sample_s: Annotated[
        float, Meta(gt=0, le=LONGEST_S, description="Seconds between two samples of GPUs and host.")
    ] = 1.0
    stop_timeout_s: Annotated[
        float,
        Meta(
            gt=0,
            le=LONGEST_S,
            description="Seconds until a stop is forced, without evaluations and checkpoints.",
        ),
    ] = 120.0
    stall_s: Annotated[
        float,
        Meta(
            gt=0,
            le=LONGEST_S,
            description="Seconds until a rank stalls whose usual pace is not known yet.",
        ),
    ] = 60.0
    listen: Annotated[
        Text | None,
        Meta(
            description="Address of this host, HOST or HOST:PORT, to which ranks report over TCP."
        ),
    ] = None


class SlurmConfig(Section, frozen=True):
    """What is requested from Slurm; the cluster decides what is unset."""

    partition: Annotated[Text | None, Meta(description="Partition of the job.")] = None
    account: Annotated[Text | None, Meta(description="Account that is charged.")] = None
    qos: Annotated[Text | None, Meta(description="Quality of service.")] = None
    constraint: Annotated[Text | None, Meta(description="Features that nodes must have.")] = None
    nodes: Annotated[int, Meta(ge=1, le=100_000, description="Nodes of the job.")] = 1
    gpus_per_node: Annotated[
        int, Meta(ge=0, le=1000, description="GPUs of each node; 0 trains on CPUs.")
    ] = 0
    tasks_per_node: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | None,
        Meta(description="Ranks of each node; unset: one per GPU, else one."),
    ] = None
    cpus_per_task: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | None, Meta(description="CPU cores of each rank.")
    ] = None
    memory: Annotated[
        Text | None, Meta(description='Memory of each node as Slurm writes it, e.g. "64G".')
    ] = None
    time: Annotated[
        SlurmTime | Count | None,
        Meta(
            description='Time limit: minutes, or as Slurm writes it, e.g. "1:00:00", "2-12".',
            extra={FORM: "minutes, MM:SS, H:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS or UNLIMITED"},
        ),
    ] = None
    extra: Annotated[
        list[str], Meta(description='More options of sbatch, e.g. ["--exclusive"].')
    ] = []  # noqa: RUF012
    prologue: Annotated[
        list[str], Meta(description="Shell lines that run before the ranks: modules, environment.")
    ] = []  # noqa: RUF012
    via: Annotated[
        Literal["torchrun", "srun"],
        Meta(description="One torchrun for each node, or one task of srun for each rank."),
    ] = "torchrun"
    warn_s: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description="Seconds before the time limit at which a checkpoint is saved; 0: never.",
        ),
    ] = 120
    requeue: Annotated[
        bool,
        Meta(description="Requeue the job when its time is up or a node fails, and continue."),
    ] = False
    report: Annotated[
        Literal["auto", "tcp", "files"],
        Meta(description="How ranks report: to the login node over TCP, or in files."),
    ] = "auto"
    poll_s: Annotated[
        float, Meta(ge=0.1, le=600, description="Seconds between two queries of the queue.")
    ] = 5.0
