"""The sections of a RunConfig that say what is trained: task, model, data, steps, checkpoints.

Each field's `Meta` is the one place of its description and range: the JSON Schema, the form of the
app and the messages come from it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from distrain.runners.config.field_types import (
    LARGEST,
    LONGEST_S,
    MOST,
    MOST_WORKERS,
    Amount,
    Count,
    Name,
    OptimizerName,
    Positive,
)
from distrain.runners.config.validation import Section


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
    swa_share: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        Meta(
            description="Share of all steps, at the end, whose weights are averaged equally "
            "(stochastic weight averaging), evaluated and saved like those of `ema`, with "
            "statistics of BatchNorm that are computed again; unset: none."
        ),
    ] = None
    swa_every_steps: Annotated[
        int, Meta(ge=1, le=MOST, description="Steps between two weights of that average.")
    ] = 1
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
