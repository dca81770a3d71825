"""RunConfig: everything that decides a run, validated once, round-trips through TOML.

Holds intent only (global batch, total loader workers); what follows from it for a given
set of devices is worked out in `plan.py`. Each field's `Meta` is the one place of its
description and range: the JSON Schema, the form of the app and the messages come from it.
"""

from __future__ import annotations

import re
import tomllib
from datetime import date, time
from typing import Annotated, Any, Literal

import msgspec
import tomli_w
from msgspec import Meta

from runners.errors import ConfigError
from runners.validation import CHOICES, FORM, OR, Devices, Section, build

STRATEGIES = ("single", "dp", "allreduce", "ddp", "horovod")
ONE_PROCESS = ("single", "dp")  # strategies of one rank, whatever the devices
Strategy = Annotated[
    str,
    Meta(
        pattern=rf"^({'|'.join(STRATEGIES)}|[A-Za-z_][A-Za-z_0-9.]*:[A-Za-z_][A-Za-z_0-9]*)$",
        extra={CHOICES: STRATEGIES, OR: '"package.module:Class"'},
        extra_json_schema={"examples": list(STRATEGIES)},
    ),
]
Launcher = Literal["inline", "spawn", "torchrun", "horovodrun", "slurm", "env"]
Precision = Literal["auto", "fp32", "tf32", "bf16", "fp16"]
Backend = Literal["auto", "gloo", "nccl", "mpi", "ucc"]

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Amount = Annotated[float, Meta(gt=0)]
Text = Annotated[str, Meta(pattern=r"^\S+$")]
SlurmTime = Annotated[str, Meta(pattern=r"^([0-9]+(-[0-9]+)?(:[0-9]+){0,2}|UNLIMITED)$")]


class Train(Section, frozen=True):
    epochs: Annotated[
        int,
        Meta(ge=0, le=2**31 - 1, description="Passes over the training set; 0 only evaluates."),
    ] = 20
    max_steps: Annotated[
        Count | None,
        Meta(description="Stop after this many optimizer steps, if that comes first."),
    ] = None
    batch_size: Annotated[
        int,
        Meta(ge=1, description="Samples per optimizer step over all ranks and micro-batches."),
    ] = 128
    accumulate: Annotated[
        int, Meta(ge=1, description="Micro-batches that one step's share of a rank is cut into.")
    ] = 1
    drop_last: Annotated[
        bool, Meta(description="Leave out the last, smaller batch of each epoch.")
    ] = False
    optimizer: Annotated[
        Literal["sgd", "adam", "adamw"], Meta(description="Fused where the device has it.")
    ] = "sgd"
    lr: Annotated[float, Meta(gt=0, description="Learning rate after warm-up.")] = 0.1
    scale_lr: Annotated[
        bool, Meta(description="Multiply the rate by the world size (linear scaling rule).")
    ] = False
    momentum: Annotated[float, Meta(ge=0, lt=1, description="Momentum of SGD.")] = 0.9
    weight_decay: Annotated[float, Meta(ge=0, description="L2 for SGD/Adam, decoupled AdamW.")] = (
        0.0
    )
    schedule: Annotated[
        Literal["constant", "step", "cosine"], Meta(description="How the rate falls.")
    ] = "constant"
    warmup_epochs: Annotated[
        float, Meta(ge=0, description="Epochs over which the rate rises linearly from near 0.")
    ] = 0.0
    step_epochs: Annotated[
        float, Meta(gt=0, description="Epochs between two falls of the `step` schedule.")
    ] = 30.0
    step_gamma: Annotated[
        float, Meta(gt=0, le=1, description="Factor of each fall of the `step` schedule.")
    ] = 0.1
    clip_norm: Annotated[
        Amount | None, Meta(description="Largest total norm of the gradients.")
    ] = None
    label_smoothing: Annotated[
        float, Meta(ge=0, lt=1, description="Of the training loss; evaluation is without.")
    ] = 0.0
    channels_last: Annotated[bool, Meta(description="NHWC memory layout for images.")] = False
    compile: Annotated[bool, Meta(description="torch.compile the model.")] = False
    sync_batchnorm: Annotated[
        bool, Meta(description="Batch statistics over all ranks (GPUs only).")
    ] = False
    seed: Annotated[
        int, Meta(ge=0, le=2**32 - 1, description="Of weights, order and augmentation.")
    ] = 0
    deterministic: Annotated[
        bool, Meta(description="Only deterministic kernels: slower, repeatable bit for bit.")
    ] = False
    threads: Annotated[
        Annotated[int, Meta(ge=1, le=4096)] | None,
        Meta(description="CPU threads per rank; unset shares the cores out equally."),
    ] = None
    on_nan: Annotated[
        Literal["stop", "continue"], Meta(description="What to do when the loss is not finite.")
    ] = "stop"


class Named(Section, frozen=True):
    name: str
    args: Annotated[dict[str, Any], Meta(description="Keyword arguments of the factory.")] = {}  # noqa: RUF012


class Task(Named, frozen=True):
    name: Annotated[str, Meta(description='"classification" or "package.module:factory".')] = (
        "classification"
    )


class Model(Named, frozen=True):
    name: Annotated[
        str,
        Meta(description='"mlp", "cnn", a torchvision model, or "package.module:factory".'),
    ] = "mlp"


class Data(Named, frozen=True):
    name: Annotated[
        str,
        Meta(
            description='"digits", "mnist", "cifar10", "imagefolder", "synthetic", '
            'or "package.module:factory".'
        ),
    ] = "digits"
    root: Annotated[str | None, Meta(description="Folder of the files, where there are any.")] = (
        None
    )
    download: Annotated[bool, Meta(description="Allow mnist and cifar10 to be fetched.")] = False
    train_limit: Annotated[
        Positive | None, Meta(description="Use only the first N training samples.")
    ] = None
    eval_limit: Annotated[
        Positive | None, Meta(description="Use only the first N evaluation samples.")
    ] = None
    workers: Annotated[
        int, Meta(ge=0, description="Loader processes of the whole run, shared out over ranks.")
    ] = 0
    worker_context: Annotated[
        Literal["fork", "spawn", "forkserver"],
        Meta(description="How loader processes are started."),
    ] = "fork"
    prefetch: Annotated[
        int, Meta(ge=1, le=10_000, description="Batches that each loader process keeps ready.")
    ] = 2
    pin_memory: Annotated[
        bool, Meta(description="Page-locked batches and a copy stream of their own (CUDA).")
    ] = True


class Eval(Section, frozen=True):
    every_epochs: Annotated[
        int, Meta(ge=0, description="Evaluate after every N epochs; 0 only at the end.")
    ] = 1
    every_steps: Annotated[
        Positive | None, Meta(description="Evaluate after every N steps as well.")
    ] = None
    batch_size: Annotated[
        Positive | None, Meta(description="Per rank; unset takes that of training.")
    ] = None


class Checkpoint(Section, frozen=True):
    every_epochs: Annotated[
        int, Meta(ge=0, description="Save after every N epochs; 0 only at the end and at a stop.")
    ] = 1
    every_steps: Annotated[
        Positive | None, Meta(description="Save after every N steps as well.")
    ] = None
    keep: Annotated[
        int, Meta(ge=0, description="Newest checkpoints kept, beside the best; 0 writes none.")
    ] = 1
    best: Annotated[
        str | None,
        Meta(description="Metric that decides the best; unset: the task's own."),
    ] = None
    best_is: Annotated[
        Literal["max", "min"] | None,
        Meta(description="Which value is better; unset: the task's own, least for a loss."),
    ] = None
    load: Annotated[str | None, Meta(description="Checkpoint file that the run goes on from.")] = (
        None
    )


class Dist(Section, frozen=True):
    backend: Annotated[
        Backend, Meta(description="Of the process group; auto is nccl on CUDA, gloo on CPU.")
    ] = "auto"
    timeout_s: Annotated[
        float,
        Meta(gt=0, le=1e7, description="Seconds that a collective waits for an absent rank."),
    ] = 300.0
    interface: Annotated[
        Text | None,
        Meta(description="Network interface of gloo and NCCL; unset: the one that fits."),
    ] = None
    nodes: Annotated[
        int, Meta(ge=1, le=100_000, description="Hosts of the run (torchrun and horovodrun).")
    ] = 1
    node_rank: Annotated[
        Count | None,
        Meta(description="Which of them this host is: 0 begins the run, the others join it."),
    ] = None
    rendezvous: Annotated[
        Text | None,
        Meta(description="HOST:PORT of host 0, at which the others join; unset: it says which."),
    ] = None
    join_timeout_s: Annotated[
        float, Meta(gt=0, le=1e7, description="Seconds that hosts wait for those still missing.")
    ] = 600.0
    max_restarts: Annotated[
        int,
        Meta(
            ge=0, le=1000, description="How often torchrun starts all ranks again after one died."
        ),
    ] = 0
    init_method: Annotated[
        Annotated[str, Meta(pattern=r"^(env|tcp|file)://")] | None,
        Meta(description="How ranks of launcher env meet: env://, tcp://HOST:PORT, file:///PATH."),
    ] = None


class Ddp(Section, frozen=True):
    bucket_mb: Annotated[
        float, Meta(gt=0, le=1e6, description="Size of a gradient bucket, MiB.")
    ] = 25.0
    static_graph: Annotated[
        bool, Meta(description="Promise that the graph is the same in every step.")
    ] = False
    gradient_as_bucket_view: Annotated[
        bool, Meta(description="Gradients live in the buckets: less memory, no copy.")
    ] = True
    find_unused_parameters: Annotated[
        bool, Meta(description="Search the graph for parameters without gradient each step.")
    ] = False
    comm_hook: Annotated[
        Literal["none", "fp16_compress", "bf16_compress", "powerSGD"],
        Meta(description="What is done to gradients on the wire."),
    ] = "none"
    powersgd_rank: Annotated[int, Meta(ge=1, description="Rank of the approximation.")] = 2
    powersgd_start: Annotated[
        int, Meta(ge=2, description="Steps of plain all-reduce before compression begins.")
    ] = 10


class Horovod(Section, frozen=True):
    via: Annotated[
        Literal["distrain", "horovodrun", "mpirun"],
        Meta(description="Who starts the ranks: distrain itself, or Horovod's or MPI's command."),
    ] = "distrain"
    compression: Annotated[
        Literal["none", "fp16"], Meta(description="What is done to gradients on the wire.")
    ] = "none"
    fusion_mb: Annotated[
        float,
        Meta(ge=0, le=1e6, description="Tensors are reduced together up to so many MiB; 0: each."),
    ] = 128.0
    cycle_ms: Annotated[
        float, Meta(gt=0, le=1e3, description="Pause between two looks for ready tensors, ms.")
    ] = 1.0
    timeline: Annotated[
        bool, Meta(description="Record Horovod's timeline, for chrome://tracing or Perfetto.")
    ] = False


class Report(Section, frozen=True):
    window_s: Annotated[float, Meta(gt=0, description="Length of a reporting window, seconds.")] = (
        0.1
    )
    skip_steps: Annotated[
        int, Meta(ge=0, description="First steps that throughput leaves out (warm-up).")
    ] = 10
    sample_s: Annotated[
        float, Meta(gt=0, description="Seconds between two samples of GPUs and host.")
    ] = 1.0
    stop_timeout_s: Annotated[
        float, Meta(gt=0, description="How long a graceful stop may take before it is forced.")
    ] = 120.0
    stall_s: Annotated[
        float, Meta(gt=0, description="Silence after which the absent rank is named.")
    ] = 60.0
    listen: Annotated[
        Text | None,
        Meta(
            description="Address of this host, HOST or HOST:PORT, at which ranks report over TCP."
        ),
    ] = None


class Slurm(Section, frozen=True):
    """What is asked of Slurm; everything unset is left to the cluster's defaults."""

    partition: Annotated[Text | None, Meta(description="Partition of the job.")] = None
    account: Annotated[Text | None, Meta(description="Account that is charged.")] = None
    qos: Annotated[Text | None, Meta(description="Quality of service.")] = None
    constraint: Annotated[Text | None, Meta(description="Features that nodes must have.")] = None
    nodes: Annotated[int, Meta(ge=1, le=100_000, description="Nodes of the job.")] = 1
    gpus_per_node: Annotated[
        int, Meta(ge=0, le=1000, description="GPUs of each node; 0 trains on CPUs.")
    ] = 0
    tasks_per_node: Annotated[
        Positive | None, Meta(description="Ranks of each node; unset: its GPUs, or one.")
    ] = None
    cpus_per_task: Annotated[Positive | None, Meta(description="CPU cores of each rank.")] = None
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
        list[str], Meta(description="Shell lines before the ranks: modules, environment.")
    ] = []  # noqa: RUF012
    via: Annotated[
        Literal["torchrun", "srun"],
        Meta(description="One torchrun for each node, or one task of srun for each rank."),
    ] = "torchrun"
    warn_s: Annotated[
        int,
        Meta(ge=0, le=86_400, description="Seconds before the time limit to save at; 0: never."),
    ] = 120
    requeue: Annotated[
        bool,
        Meta(description="Queue the job again when its time is up or a node fails; it goes on."),
    ] = False
    report: Annotated[
        Literal["auto", "tcp", "files"],
        Meta(
            description="How ranks report: to the login node over TCP, or by files beside the job."
        ),
    ] = "auto"
    poll_s: Annotated[
        float, Meta(ge=0.1, le=600, description="Seconds between two looks at the queue.")
    ] = 5.0


class RunConfig(Section, frozen=True):
    """Everything that decides a run."""

    description: Annotated[str, Meta(description="One line for lists.")] = ""
    strategy: Annotated[Strategy, Meta(description="How replicas are kept equal.")] = "ddp"
    launcher: Annotated[Launcher, Meta(description="How rank processes come to be.")] = "torchrun"
    precision: Annotated[
        Precision,
        Meta(
            description="Of the arithmetic; weights stay in fp32. auto is fp16 on CUDA, "
            "bf16 on CPU."
        ),
    ] = "fp32"
    devices: Annotated[
        Devices,
        Meta(
            description='"auto" (all GPUs, else two CPU processes), "all", "cpu:N", '
            "or a list of GPU indices or UUIDs."
        ),
    ] = "auto"
    oversubscribe: Annotated[bool, Meta(description="Allow several ranks on one GPU.")] = False
    train: Train = Train()
    task: Task = Task()
    model: Model = Model()
    data: Data = Data()
    eval: Eval = Eval()
    checkpoint: Checkpoint = Checkpoint()
    dist: Dist = Dist()
    ddp: Ddp = Ddp()
    horovod: Horovod = Horovod()
    slurm: Slurm = Slurm()
    report: Report = Report()

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RunConfig:
        """Validate plain data; raises ConfigError with every problem and its key."""
        problems: list[tuple[str, str]] = []
        config = build(cls, data, "", problems)
        if problems:
            raise ConfigError(problems)
        assert isinstance(config, RunConfig)
        return config

    @classmethod
    def from_toml(cls, text: str) -> RunConfig:
        """Parse and validate TOML; raises ConfigError."""
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"this is not TOML: {error}") from None
        except RecursionError:
            raise ConfigError("this is not a preset: it is nested too deeply") from None
        except ValueError as error:  # numbers of thousands of digits
            raise ConfigError(f"this is not a preset: {error}") from None
        return cls.from_dict(data)

    def to_dict(self) -> dict[str, Any]:
        """Plain data without the unset (None) fields; `from_dict` gives the same config."""
        data: dict[str, Any] = _without_none(msgspec.to_builtins(self))
        return data

    def to_toml(self, whole: bool = True) -> str:
        """As TOML; without `whole` only what differs from the defaults, as a person would write."""
        data = self.to_dict()
        return tomli_w.dumps(data if whole else _unlike(data, RunConfig().to_dict()))

    def with_changes(self, changes: dict[str, Any]) -> RunConfig:
        """A copy with dotted keys set, e.g. {"train.lr": 0.05}; None unsets one.

        Raises ConfigError.
        """
        data = self.to_dict()
        problems = []
        for key, value in changes.items():
            *path, last = key.split(".")
            table = data
            for index, name in enumerate(path):
                table = table.setdefault(name, {})
                if not isinstance(table, dict):
                    problems.append((key, f"{'.'.join(path[: index + 1])} is not a table"))
                    break
            else:
                table[last] = value
        if problems:
            raise ConfigError(problems)
        return RunConfig.from_dict(_without_none(data))


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a preset, for editors."""
    schema = msgspec.json.schema(RunConfig)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def parse_assignment(text: str) -> tuple[str, Any]:
    """`KEY=VALUE` of --set: VALUE is TOML where it parses, else a string; `KEY=` unsets.

    Raises ConfigError where there is no "=".
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set wants KEY=VALUE, e.g. --set train.lr=0.05, not {text!r}")
    if not value.strip():
        return key.strip(), None
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
        # 01:30:00 is a time of day in TOML, and of no key's kind.
        return key.strip(), value.strip() if isinstance(parsed, date | time) else parsed
    except tomllib.TOMLDecodeError:
        return key.strip(), value
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"the value of {key.strip()} cannot be read: {error}") from None


def parse_devices(text: str) -> str | list[int | str]:
    """`--devices` as the config has it: "0,1" → [0, 1], "GPU-a,GPU-b" → a list, else as it is."""
    if text in ("auto", "all") or text.startswith("cpu"):
        return text
    parts = [part.strip() for part in text.split(",")]
    return [int(part) if re.fullmatch("[0-9]{1,9}", part) else part for part in parts]


def differences(ours: RunConfig, theirs: RunConfig) -> dict[str, tuple[Any, Any]]:
    """Dotted keys whose values differ, each with both values (None where unset)."""
    a, b = flat(ours.to_dict()), flat(theirs.to_dict())
    return {key: (a.get(key), b.get(key)) for key in sorted(a | b) if a.get(key) != b.get(key)}


def flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one of dotted keys."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def _unlike(data: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    """What of nested data differs from the usual."""
    left: dict[str, Any] = {}
    for key, value in data.items():
        known = usual.get(key)
        if isinstance(value, dict) and isinstance(known, dict):
            if inner := _unlike(value, known):
                left[key] = inner
        elif value != known:
            left[key] = value
    return left


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value
