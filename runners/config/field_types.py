"""Types of the fields of a RunConfig: the choices, ranges and patterns that sections share."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from distrain.runners.config.validation import CHOICES, OR
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
