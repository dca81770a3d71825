"""The sections of a RunConfig, each a table of a preset.

Each field's `Meta` is the one place of its description and range: the JSON Schema, the form of the
app and the messages come from it.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

from msgspec import Meta

from distrain.runners.config.validation import CHOICES, FORM, OR, Section
from distrain.runners.formatting import INVISIBLE

OPTIMIZERS = ("sgd", "adam", "adamw")
STRATEGIES = ("single", "dp", "allreduce", "ddp", "horovod")
ONE_PROCESS = ("single", "dp")  # strategies of one rank, whatever the devices
SCRIPT = "script"  # the strategy of a program of the user's, which wraps its model itself
# The end of a text: `$` alone also matches before a line break at the end.
END = r"$(?!\n)"
StrategyName = Annotated[
    str,
    Meta(
        pattern=rf"^({'|'.join(STRATEGIES)}|{SCRIPT}|[A-Za-z_][\w.]*:[A-Za-z_]\w*){END}",
        extra={CHOICES: STRATEGIES, OR: '"package.module:Class"'},
        extra_json_schema={"examples": [*STRATEGIES, SCRIPT]},
    ),
]
OptimizerName = Annotated[
    str,
    Meta(
        pattern=rf"^({'|'.join(OPTIMIZERS)}|[A-Za-z_][\w.]*:[A-Za-z_]\w*){END}",
        extra={CHOICES: OPTIMIZERS, OR: '"package.module:factory"'},
        extra_json_schema={"examples": [*OPTIMIZERS, "torch.optim:RMSprop"]},
    ),
]
Launcher = Literal["inline", "spawn", "torchrun", "horovodrun", "slurm", "env"]
PrecisionName = Literal["auto", "fp32", "tf32", "bf16", "fp16"]
Backend = Literal["auto", "gloo", "nccl", "mpi", "ucc"]

# No figure of a training comes near these; with larger ones, arithmetic and clocks overflow.
MOST = 2**31 - 1
LARGEST = 1e30
LONGEST_S = 1e7
MOST_WORKERS = 100_000
Count = Annotated[int, Meta(ge=0, le=MOST)]
Positive = Annotated[int, Meta(ge=1, le=MOST)]
Amount = Annotated[float, Meta(gt=0, le=LARGEST)]
# Names are printed in tables, so they have no control characters.
Name = Annotated[str, Meta(pattern=rf"^[^\x00-\x1f{INVISIBLE}]*{END}")]
Text = Annotated[str, Meta(pattern=rf"^\S+{END}")]
SlurmTime = Annotated[str, Meta(pattern=rf"^([0-9]+(-[0-9]+)?(:[0-9]+){{0,2}}|UNLIMITED){END}")]


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
        dict[str, str], Meta(description="Variables that are added to its environment.")
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


class TrainConfig(Section, frozen=True):
    epochs: Annotated[
        int,
        Meta(ge=0, le=MOST, description="Passes over the training set; 0 only evaluates."),
    ] = 20
    max_steps: Annotated[
        Count | None,
        Meta(description="Stop after this many optimizer steps, if that comes first."),
    ] = None
    max_time_s: Annotated[
        Annotated[float, Meta(gt=0, le=LONGEST_S)] | None,
        Meta(description="Stop with a checkpoint so many seconds after the start of training."),
    ] = None
    patience: Annotated[
        Positive | None,
        Meta(
            description="End after this many evaluations in a row without a better value of "
            "`checkpoint.best`."
        ),
    ] = None
    batch_size: Annotated[
        int,
        Meta(
            ge=1,
            le=MOST,
            description="Samples per optimizer step over all ranks and micro-batches.",
        ),
    ] = 128
    accumulate: Annotated[
        int,
        Meta(
            ge=1,
            le=MOST,
            description="Micro-batches into which each rank divides its share of a step.",
        ),
    ] = 1
    drop_last: Annotated[
        bool, Meta(description="Leave out the last, smaller batch of each epoch.")
    ] = False
    optimizer: Annotated[
        OptimizerName,
        Meta(description='"sgd", "adam", "adamw" (fused), or "package.module:factory".'),
    ] = "sgd"
    optimizer_args: Annotated[
        dict[str, Any], Meta(description="Further keyword arguments of the optimizer.")
    ] = {}  # noqa: RUF012
    lr: Annotated[float, Meta(gt=0, le=LARGEST, description="Learning rate after warm-up.")] = 0.1
    scale_lr: Annotated[
        bool, Meta(description="Multiply the rate by the world size (linear scaling rule).")
    ] = False
    momentum: Annotated[float, Meta(ge=0, lt=1, description="Momentum of SGD.")] = 0.9
    weight_decay: Annotated[
        float, Meta(ge=0, le=LARGEST, description="L2 for SGD and Adam, decoupled for AdamW.")
    ] = 0.0
    schedule: Annotated[
        Literal["constant", "step", "cosine", "onecycle", "wsd"],
        Meta(description="Schedule of the learning rate."),
    ] = "constant"
    warmup_epochs: Annotated[
        float,
        Meta(ge=0, le=MOST, description="Epochs over which the rate rises linearly from near 0."),
    ] = 0.0
    step_epochs: Annotated[
        float, Meta(gt=0, le=MOST, description="Epochs between two falls of the `step` schedule.")
    ] = 30.0
    step_gamma: Annotated[
        float, Meta(gt=0, le=1, description="Factor of each fall of the `step` schedule.")
    ] = 0.1
    decay_share: Annotated[
        float,
        Meta(gt=0, le=1, description="Share of all steps in which the `wsd` schedule falls to 0."),
    ] = 0.2
    clip_norm: Annotated[
        Amount | None, Meta(description="Largest total norm of the gradients; unset: not clipped.")
    ] = None
    ema: Annotated[
        Annotated[float, Meta(gt=0, lt=1)] | None,
        Meta(
            description="Decay of a moving average of the weights, such as 0.999, which is "
            "evaluated in their place and saved with them; unset: none."
        ),
    ] = None
    label_smoothing: Annotated[
        float,
        Meta(ge=0, lt=1, description="Label smoothing of the training loss; evaluation has none."),
    ] = 0.0
    channels_last: Annotated[bool, Meta(description="NHWC memory layout for images.")] = False
    compile: Annotated[bool, Meta(description="Compile the model with torch.compile.")] = False
    sync_batchnorm: Annotated[
        bool, Meta(description="Batch statistics over all ranks (GPUs only).")
    ] = False
    seed: Annotated[
        int, Meta(ge=0, le=2**32 - 1, description="Seed of weights, sample order and augmentation.")
    ] = 0
    deterministic: Annotated[
        bool, Meta(description="Use deterministic kernels only: slower, repeatable bit for bit.")
    ] = False
    threads: Annotated[
        Annotated[int, Meta(ge=1, le=4096)] | None,
        Meta(description="CPU threads per rank; unset: the cores divided equally."),
    ] = None
    on_nan: Annotated[
        Literal["stop", "continue"], Meta(description="What to do when the loss is not finite.")
    ] = "stop"


class FactoryConfig(Section, frozen=True):
    name: Name
    args: Annotated[
        dict[str, Any],
        Meta(
            description="Keyword arguments of the factory.",
        ),
    ] = {}  # noqa: RUF012


class TaskConfig(FactoryConfig, frozen=True):
    name: Annotated[
        Name, Meta(description='"classification", "language", or "package.module:factory".')
    ] = "classification"


class ModelConfig(FactoryConfig, frozen=True):
    name: Annotated[
        Name,
        Meta(description='"mlp", "cnn", "gpt", a torchvision model, or "package.module:factory".'),
    ] = "mlp"


class DataConfig(FactoryConfig, frozen=True):
    name: Annotated[
        Name,
        Meta(
            description='"digits", "mnist", "cifar10", "imagefolder", "text", "synthetic", '
            'or "package.module:factory".'
        ),
    ] = "digits"
    root: Annotated[
        str | None, Meta(description="Folder of the data files, or the file of text.")
    ] = None
    download: Annotated[bool, Meta(description="Allow downloads of mnist and cifar10.")] = False
    train_limit: Annotated[
        Positive | None, Meta(description="Use only the first N training samples.")
    ] = None
    eval_limit: Annotated[
        Positive | None, Meta(description="Use only the first N evaluation samples.")
    ] = None
    workers: Annotated[
        int,
        Meta(
            ge=0,
            le=MOST_WORKERS,
            description="Loader processes of the whole run, divided among the ranks; evaluations "
            "have as many of their own.",
        ),
    ] = 0
    worker_context: Annotated[
        Literal["fork", "spawn", "forkserver"],
        Meta(description="How loader processes are started."),
    ] = "fork"
    prefetch: Annotated[
        int, Meta(ge=1, le=10_000, description="Batches that each loader process keeps ready.")
    ] = 2
    timeout_s: Annotated[
        float,
        Meta(
            gt=0,
            le=LONGEST_S,
            description="Longest wait for a batch of a loader process, in seconds.",
        ),
    ] = 600.0
    pin_memory: Annotated[
        bool, Meta(description="Page-locked batches, copied on a separate stream (CUDA).")
    ] = True


class EvalConfig(Section, frozen=True):
    every_epochs: Annotated[
        int, Meta(ge=0, le=MOST, description="Evaluate after every N epochs; 0 only at the end.")
    ] = 1
    every_steps: Annotated[
        Positive | None, Meta(description="Evaluate after every N steps as well.")
    ] = None
    batch_size: Annotated[
        Positive | None, Meta(description="Samples per batch and rank; unset: those of training.")
    ] = None


class CheckpointConfig(Section, frozen=True):
    every_epochs: Annotated[
        int,
        Meta(
            ge=0, le=MOST, description="Save after every N epochs; 0 only at the end and at a stop."
        ),
    ] = 1
    every_steps: Annotated[
        Positive | None, Meta(description="Save after every N steps as well.")
    ] = None
    keep: Annotated[
        int,
        Meta(
            ge=0,
            le=MOST,
            description="Newest checkpoints kept, in addition to the best; 0 writes none.",
        ),
    ] = 1
    best: Annotated[
        str | None,
        Meta(description="Metric that decides the best checkpoint; unset: that of the task."),
    ] = None
    best_is: Annotated[
        Literal["max", "min"] | None,
        Meta(description="Which value is better; unset: as the task says, min for a loss."),
    ] = None
    load: Annotated[
        str | None, Meta(description="Checkpoint file from which the run continues.")
    ] = None


class DistConfig(Section, frozen=True):
    backend: Annotated[
        Backend, Meta(description="Backend of the process group; auto: nccl on CUDA, gloo on CPU.")
    ] = "auto"
    timeout_s: Annotated[
        float,
        Meta(gt=0, le=LONGEST_S, description="Seconds that a collective waits for an absent rank."),
    ] = 300.0
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
        Meta(gt=0, le=LONGEST_S, description="Seconds that a stop may take before it is forced."),
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
