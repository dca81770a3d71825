"""What a rank, a launcher, a node, a viewer or the supervisor says: the protocol, version 1.

One event is one line of JSON with its `type` first; `docs/protocol.md` tells it for other
languages. Times are Unix seconds, durations seconds, sizes bytes. Nothing else in the
project defines a message.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

VERSION = 1
# What JSON's readers and SQLite agree on.
Int = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """A line on the wire."""


# --- from a rank -----------------------------------------------------------------------------


class Hello(Event, frozen=True, tag="hello"):
    """First line of every connection. `token` is asked for on TCP only.

    A `node` starts the ranks of a host, which is number `node` (-1: as the supervisor likes), a
    `task` one of them. `attempt` counts how often Slurm has queued the job again.
    """

    version: Int = VERSION
    role: Literal["rank", "launcher", "node", "task", "viewer"] = "rank"
    token: str = ""
    rank: Int = 0
    local_rank: Int = 0
    world_size: Int = 1
    pid: Int = 0
    host: str = ""
    device: str = ""
    device_uuid: str = ""
    node: Int = -1
    attempt: Int = 0


class Phase(Event, frozen=True, tag="phase"):
    """A rank begins `loading`, `training`, `evaluating` or `saving`."""

    time: float
    rank: Int
    phase: Literal["loading", "training", "evaluating", "saving"]
    step: Int = 0


class Facts(Event, frozen=True, tag="facts"):
    """What only a rank can know, said once by rank 0 before the first step.

    `start_step` and `start_epoch` count what was finished before. `start_epoch_steps` are left
    of the epoch in which it begins (0: all): it may resume anywhere, with another batch size.
    """

    time: float
    train_samples: Int
    eval_samples: Int
    steps_per_epoch: Int
    total_steps: Int
    parameters: Int
    backend: str
    start_step: Int = 0
    start_epoch: Int = 0
    start_epoch_steps: Int = 0
    versions: dict[str, str] = {}
    notices: list[str] = []


class Window(Event, frozen=True, tag="window"):
    """Sums over consecutive steps of one rank; two neighbours merge without loss.

    `step` counts optimizer steps finished at its end. The loss sum is over samples; the three
    losses are None once one was not finite, for JSON has neither NaN nor infinity. `data`,
    `forward`, `backward`, `comm`, `optimizer` are seconds of `seconds`; what is left is other
    work of the loop. Beside them lie `overlap`, in which gradients travelled while backward
    computed, and `wait`, from the rank's arrival at each step's first all-reduce to its end: all
    ranks leave that together, so who waits least came last. Evaluation and checkpoints lie
    between windows, not in them. `warmup` windows are left out of throughput.
    """

    time: float
    rank: Int
    epoch: Int
    step: Int
    steps: Int
    samples: Int
    loss_sum: float | None
    loss_min: float | None
    loss_max: float | None
    lr: float
    seconds: float
    data: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    comm: float = 0.0
    optimizer: float = 0.0
    overlap: float = 0.0
    wait: float = 0.0
    skipped: Int = 0
    warmup: bool = False

    def merged(self, later: Window) -> Window:
        """The window that covers both; `later` must follow this one.

        It is a warm-up window if either is: throughput must not see any of it.
        """
        sums = {name: getattr(self, name) + getattr(later, name) for name in WINDOW_SUMS}
        return msgspec.structs.replace(
            later,
            loss_sum=_unless_missing(operator.add, self.loss_sum, later.loss_sum),
            loss_min=_unless_missing(min, self.loss_min, later.loss_min),
            loss_max=_unless_missing(max, self.loss_max, later.loss_max),
            warmup=self.warmup or later.warmup,
            **sums,
        )


def _unless_missing(
    combine: Callable[[float, float], float], a: float | None, b: float | None
) -> float | None:
    return None if a is None or b is None else combine(a, b)


PHASES = ("data", "forward", "backward", "comm", "optimizer")
OTHER = "other"  # what is left of a window: work of the loop that is no phase of training
BESIDE = ("overlap", "wait")  # sums of seconds that are no part of a window's length
WINDOW_SUMS = ("steps", "samples", "seconds", *PHASES, *BESIDE, "skipped")


class Metric(msgspec.Struct, frozen=True):
    """A sum over the whole evaluation set and what to divide it by."""

    total: float | None
    count: Int

    @classmethod
    def of(cls, total: float, count: int) -> Metric:
        return cls(total if math.isfinite(total) else None, count)

    @property
    def value(self) -> float | None:
        """The mean; None without samples or where the sum is not finite."""
        return self.total / self.count if self.total is not None and self.count else None


class Evaluation(Event, frozen=True, tag="evaluation"):
    """All-reduced sums over every evaluation sample exactly once; said by rank 0."""

    time: float
    epoch: Int
    step: Int
    samples: Int
    seconds: float
    metrics: dict[str, Metric]


class Saved(Event, frozen=True, tag="saved"):
    """A checkpoint is on disk, whole. `path` is relative to the record."""

    time: float
    epoch: Int
    step: Int
    path: str
    seconds: float
    bytes: Int
    best: bool = False


class Notice(Event, frozen=True, tag="notice"):
    """A sentence that a person should read."""

    time: float
    text: str
    level: Literal["info", "warning"] = "warning"
    rank: Int | None = None


class NonFinite(Event, frozen=True, tag="nonfinite"):
    """The loss of a rank was NaN or infinite at `step`."""

    time: float
    rank: Int
    step: Int
    loss: str


class Failure(Event, frozen=True, tag="failure"):
    """A rank ends with an exception.

    `usage` marks an error of the user's configuration, `collateral` one that looks like the
    death of another rank (a broken or timed-out connection).
    """

    time: float
    rank: Int
    error: str
    message: str
    traceback: str = ""
    step: Int = 0
    usage: bool = False
    collateral: bool = False


class Finished(Event, frozen=True, tag="finished"):
    """A rank has left the loop in order, after `step` steps."""

    time: float
    rank: Int
    step: Int
    stopped: bool = False


# --- from a launcher -------------------------------------------------------------------------


class Exited(Event, frozen=True, tag="exited"):
    """How a rank process ended, as its parent saw it; a negative code is a signal."""

    time: float
    rank: Int
    pid: Int
    code: Int


# --- from a launcher that hands the work to a scheduler ----------------------------------------


class Job(Event, frozen=True, tag="job"):
    """How the scheduler's job stands, in its own words; said when any of it has changed.

    `state` and `reason` are Slurm's (PENDING, Resources), `place` the jobs of its partition
    that are before it in the queue, `starts` and `ends` when it is expected to start and when
    its time is up (Unix seconds), `restarts` how often it was queued again, `ended` says
    in a sentence how it ended, unless its launcher ended it.
    """

    time: float
    id: str
    state: str
    reason: str = ""
    nodes: list[str] = []
    place: Int | None = None
    starts: float | None = None
    ends: float | None = None
    restarts: Int = 0
    ended: str = ""


class Requeue(Event, frozen=True, tag="requeue"):
    """To such a launcher: queue the job again, some of its nodes answer no more."""


# --- from a node, and to it --------------------------------------------------------------------


class Meeting(Event, frozen=True, tag="meeting"):
    """Node 0: where the ranks of all nodes meet, HOST:PORT (a TCPStore, or Horovod's server)."""

    place: str


class Welcome(Event, frozen=True, tag="welcome"):
    """The supervisor's answer to a node, once it can begin: `config` is TOML, `plan` JSON.

    `versions` are those of the supervisor's host: others should have the same.
    """

    run_id: str
    node: Int
    config: str
    plan: str
    meeting: str = ""
    versions: dict[str, str] = {}


class Printed(Event, frozen=True, tag="printed"):
    """What a rank printed, from a node that does not share the record's folder."""

    rank: Int
    text: str


class Over(Event, frozen=True, tag="over"):
    """A node's ranks have ended, and all that it had to say of them was said."""


class Ended(Event, frozen=True, tag="ended"):
    """To nodes, the last that they hear: how the run has ended."""

    status: str
    reason: str


# --- from the supervisor to the record ---------------------------------------------------------


class Attempt(Event, frozen=True, tag="attempt"):
    """The ranks were started anew, and go on after `step`: what came later is taken back.

    Said by the supervisor; `number` counts from 1, `lost` is the last step that was done before.
    """

    time: float
    number: Int
    step: Int
    lost: Int
    reason: str = ""


# --- a stop: the supervisor asks, every rank answers, all leave at the same step --------------


class Stop(Event, frozen=True, tag="stop"):
    """Viewer → supervisor, supervisor → ranks. `now` skips the checkpoint; `again` is a launcher's
    word that it will start the ranks anew, which then go on.
    """

    now: bool = False
    again: bool = False


class Stopping(Event, frozen=True, tag="stopping"):
    """A rank's answer: it will not go beyond `step` + 1 until it is told where to stop."""

    rank: Int
    step: Int


class StopAt(Event, frozen=True, tag="stop_at"):
    """Leave the loop after `step`, which no rank has passed."""

    step: Int
    save: bool = True


# --- measured by the supervisor, and by nodes on their hosts ----------------------------------

GPUS_OF_A_HOST = 1000


class GpuSample(msgspec.Struct, frozen=True, kw_only=True):
    """NVML of one GPU; None where the device does not offer the field.

    utilisation in percent, memory in bytes, power in watts, temperature in °C, clocks in MHz,
    energy in joules since the driver was loaded; `processes` maps pid to bytes (or None).
    `gpu` is NVML's index, plus GPUS_OF_A_HOST for each host of the run before it.
    """

    time: float
    gpu: Int
    uuid: str
    name: str
    utilisation: float | None = None
    memory_used: float | None = None
    memory_total: float | None = None
    power: float | None = None
    temperature: float | None = None
    sm_clock: float | None = None
    memory_clock: float | None = None
    energy: float | None = None
    processes: dict[int, int | None] = {}

    @property
    def host(self) -> int:
        return self.gpu // GPUS_OF_A_HOST

    @property
    def index(self) -> int:
        return self.gpu % GPUS_OF_A_HOST


class HostSample(msgspec.Struct, frozen=True, kw_only=True):
    """A machine: cpu in percent of all cores, memory in bytes, load over one minute. `host` is
    its number in `RunState.hosts`.
    """

    host: Int = 0
    time: float
    cpu: float
    memory_used: float
    memory_total: float
    load: float


class RankSample(msgspec.Struct, frozen=True, kw_only=True):
    """One rank with its loader workers: cpu in percent of one core, rss in bytes."""

    time: float
    rank: Int
    cpu: float
    rss: float
    processes: Int


class Sampled(Event, frozen=True, tag="sampled"):
    """A node's host, GPUs and ranks at one moment; it counts its host as 0.

    Where each rank has a task of its own, the first of a host tells of host and GPUs.
    """

    host: HostSample | None = None
    gpus: list[GpuSample] = []
    ranks: list[RankSample] = []


Said = (
    Hello
    | Phase
    | Facts
    | Window
    | Evaluation
    | Saved
    | Notice
    | NonFinite
    | Failure
    | Finished
    | Exited
    | Job
    | Requeue
    | Meeting
    | Welcome
    | Printed
    | Over
    | Ended
    | Attempt
    | Sampled
    | Stop
    | Stopping
    | StopAt
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Said] = msgspec.json.Decoder(Said)


def encode(event: Event) -> bytes:
    """One line, with its newline. NaN and infinities become null, as JSON has none."""
    return _encoder.encode(event) + b"\n"


def decode(line: bytes | bytearray | memoryview) -> Said:
    """One line back; raises msgspec.ValidationError or DecodeError."""
    return _decoder.decode(line)


def as_dict(event: msgspec.Struct) -> dict[str, Any]:
    """Plain data of an event or sample with all its fields, for exports and --json."""
    fields = msgspec.to_builtins(msgspec.structs.asdict(event))
    tag = event.__struct_config__.tag
    return {"type": tag, **fields} if tag else dict(fields)
