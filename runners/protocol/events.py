"""The messages of the protocol, version 1, between supervisor, ranks, launchers, nodes and viewers.

One message is one line of JSON with its `type` first; `docs/protocol.md` describes them for other
languages. Times are in Unix seconds, durations in seconds, sizes in bytes. Names on the wire never
change; where a field has a better name in Python, `msgspec.field(name=...)` gives that of the wire.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

import msgspec

VERSION = 1
# Integers that every JSON reader and SQLite can represent exactly.
NEVER = 1 << 53
Int = Annotated[int, msgspec.Meta(ge=-NEVER, le=NEVER)]


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """A message; one line on the wire."""


# --- from a rank -----------------------------------------------------------------------------


class Hello(Event, frozen=True, tag="hello"):
    """The first line of every connection. `token` is required on TCP only.

    The role `node` is an agent that starts all ranks of a host, `task` one that starts one rank.
    `node` is the host's number (-1: the supervisor chooses). `attempt` counts how often Slurm has
    requeued the job. `spawned`: distrain has not started this process, which reports its own end;
    it takes the place of the program that has started it.
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
    spawned: bool = False


class Phase(Event, frozen=True, tag="phase"):
    """A rank begins loading, training, evaluating or saving; "running" is a program of its own."""

    time: float
    rank: Int
    phase: Literal["loading", "training", "evaluating", "saving", "running"]
    step: Int = 0


class Facts(Event, frozen=True, tag="facts"):
    """What only a rank knows of the training; rank 0 sends it once, before the first step.

    `start_step` and `start_epoch` count what an earlier run has finished. `start_epoch_steps` is
    the number of steps left in the first epoch (0: all of them), as a run may resume within an
    epoch and with another batch size.
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
    """Sums over consecutive steps of one rank; two consecutive windows merge without loss.

    `step` is the number of optimizer steps finished at the end of the window. `loss_sum` is over
    samples; the three losses are None once one was not finite, as JSON has neither NaN nor
    infinity. `data`, `forward`, `backward`, `comm` and `optimizer` are parts of `seconds`; the
    rest is other work of the loop. `overlap` and `wait` overlap those parts: `overlap` is the time
    in which gradients were communicated while backward computed, `wait` the time from the rank's
    arrival at each step's first all-reduce to the end of that all-reduce. All ranks leave it
    together, so the rank that waits least arrived last. Evaluation and checkpoints are between
    windows, not in them. `warmup` windows do not count for throughput.
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
    lr: float | None
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
        """Return the window that covers this one and `later`, which must follow it directly.

        It is a warm-up window if either is, so that no warm-up counts for throughput.
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
OTHER = "other"  # the rest of a window: work of the loop that belongs to no phase
OVERLAPPING = ("overlap", "wait")  # seconds that overlap the phases
WINDOW_SUMS = ("steps", "samples", "seconds", *PHASES, *OVERLAPPING, "skipped")


class LoggedStats(msgspec.Struct, frozen=True):
    """Values of one name that were logged one after another; None where none was finite."""

    count: Int
    total: float | None
    low: float | None
    high: float | None
    last: float | None

    @classmethod
    def of(cls, values: Iterable[float]) -> LoggedStats:
        """Summarise values; those that are not finite are counted and otherwise left out."""
        given = [*values]
        finite = [value for value in given if math.isfinite(value)]
        if not finite:
            return cls(len(given), None, None, None, None)
        return cls(len(finite), math.fsum(finite), min(finite), max(finite), finite[-1])


class Logged(Event, frozen=True, tag="logged"):
    """What a script has logged on a rank, by name: values of the steps up to `step`."""

    time: float
    rank: Int
    step: Int
    values: dict[str, LoggedStats]


class RankEvaluation(Event, frozen=True, tag="rank_evaluation"):
    """A rank's share of an evaluation of a script: means over its `samples`.

    The `number`-th of each rank belong together. `reduced` means are those of all ranks already.
    """

    time: float
    rank: Int
    number: Int
    step: Int
    samples: Int
    metrics: dict[str, float]
    reduced: bool = False


class ScriptSettings(Event, frozen=True, tag="script_settings"):
    """What a script has passed to `init`, and where its figures come from, by name.

    `missing` says of other figures why there are none.
    """

    time: float
    rank: Int
    config: dict[str, Any] = {}
    sources: dict[str, str] = {}
    missing: dict[str, str] = {}


class RankFacts(Event, frozen=True, tag="rank_facts"):
    """What a rank of a script does that may be a mistake if all ranks do it, after `step` steps.

    Later messages replace earlier ones; None is not known yet. `uses_process_group`: something was
    sent in it between steps. `batches` are checksums of the first batches. `saved` are the first
    files that it has written, as absolute paths. `has_idle_optimizer`: it ends, and an optimizer
    was made that has never stepped.
    """

    time: float
    rank: Int
    step: Int
    has_process_group: bool | None = None
    uses_process_group: bool | None = None
    batches: list[Int] = []
    saved: list[str] = []
    has_idle_optimizer: bool = False


class Metric(msgspec.Struct, frozen=True):
    """A mean over the evaluation set, as a sum and the count to divide it by."""

    total: float | None
    count: Int

    @classmethod
    def of(cls, total: float, count: int) -> Metric:
        """Return a metric whose total is None where it is not finite."""
        return cls(total if math.isfinite(total) else None, count)

    @property
    def value(self) -> float | None:
        """The mean; None without samples or where the sum is not finite."""
        return self.total / self.count if self.total is not None and self.count else None


class Evaluation(Event, frozen=True, tag="evaluation"):
    """All-reduced sums over the evaluation set, each sample exactly once; sent by rank 0."""

    time: float
    epoch: Int
    step: Int
    samples: Int
    seconds: float
    metrics: dict[str, Metric]


class Saved(Event, frozen=True, tag="saved"):
    """A checkpoint is complete on disk. `path` is relative to the record."""

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

    `usage` marks an error of the user's configuration. `secondary` (on the wire: `collateral`)
    marks an error that looks like a consequence of another rank's failure, e.g. a broken or
    timed-out connection.
    """

    time: float
    rank: Int
    error: str
    message: str
    traceback: str = ""
    step: Int = 0
    usage: bool = False
    secondary: bool = msgspec.field(default=False, name="collateral")


class Finished(Event, frozen=True, tag="finished"):
    """A rank has left the training loop without an error, after `step` steps."""

    time: float
    rank: Int
    step: Int
    stopped: bool = False


# --- from a launcher -------------------------------------------------------------------------


class Exited(Event, frozen=True, tag="exited"):
    """The exit code of a rank process, reported by its parent; a negative code is a signal."""

    time: float
    rank: Int
    pid: Int
    code: Int


# --- from a launcher that hands the work to a scheduler ----------------------------------------


class Job(Event, frozen=True, tag="job"):
    """The state of the scheduler's job; sent when any of it has changed.

    `state` and `reason` are Slurm's (PENDING, Resources). `jobs_ahead` (on the wire: `place`)
    counts the jobs of its partition that are ahead of it in the queue. `starts` and `ends` are
    its expected start and its time limit, in Unix seconds. `restarts` counts how often it was
    requeued. `ended` is a sentence about how it ended, unless its launcher ended it.
    """

    time: float
    id: str
    state: str
    reason: str = ""
    nodes: list[str] = []
    jobs_ahead: Int | None = msgspec.field(default=None, name="place")
    starts: float | None = None
    ends: float | None = None
    restarts: Int = 0
    ended: str = ""


class Requeue(Event, frozen=True, tag="requeue"):
    """To such a launcher: requeue the job, because some of its nodes do not respond."""


# --- from a node, and to it --------------------------------------------------------------------


class Rendezvous(Event, frozen=True, tag="meeting"):
    """From node 0: the HOST:PORT at which the ranks of all nodes meet.

    That is a TCPStore, or Horovod's rendezvous server. On the wire the field is `place`.
    """

    address: str = msgspec.field(name="place")


class Welcome(Event, frozen=True, tag="welcome"):
    """The supervisor's answer to a node, once it can start its ranks.

    `config` is TOML, `plan` JSON. `rendezvous` (on the wire: `meeting`) is the address of a
    Rendezvous. `versions` are those of the supervisor's host, which other hosts should have too.
    """

    run_id: str
    node: Int
    config: str
    plan: str
    rendezvous: str = msgspec.field(default="", name="meeting")
    versions: dict[str, str] = {}


class Printed(Event, frozen=True, tag="printed"):
    """Output of a rank, from a node that does not share the record's folder."""

    rank: Int
    text: str


class NodeFinished(Event, frozen=True, tag="over"):
    """A node's ranks have ended, and all messages about them were sent."""


class RunEnded(Event, frozen=True, tag="ended"):
    """To nodes, as the last message: how the run has ended."""

    status: str
    reason: str


# --- from the supervisor to the record ---------------------------------------------------------


class Attempt(Event, frozen=True, tag="attempt"):
    """The ranks were restarted and continue after `step`; later steps are discarded.

    Written by the supervisor. `number` counts restarts from 1; `lost` is the last step that was
    done before the restart.
    """

    time: float
    number: Int
    step: Int
    lost: Int
    reason: str = ""


# --- a stop: the supervisor requests it, every rank answers, all leave at the same step --------


class Stop(Event, frozen=True, tag="stop"):
    """Stop the run: from a viewer to the supervisor, from the supervisor to the ranks.

    `now` skips the checkpoint. `restart` (on the wire: `again`) comes from a launcher that will
    restart the ranks, which then continue.
    """

    now: bool = False
    restart: bool = msgspec.field(default=False, name="again")


class Stopping(Event, frozen=True, tag="stopping"):
    """A rank's answer: it will not go beyond `step` + 1 before it receives a StopAt."""

    rank: Int
    step: Int


class StopSupport(Event, frozen=True, tag="stop_support"):
    """From a rank of a script: its program asks after each step whether to stop."""

    rank: Int


class StopAt(Event, frozen=True, tag="stop_at"):
    """To every rank: leave the loop after `step`, which no rank has passed.

    NEVER takes a stop back that not all ranks have answered in time.
    """

    step: Int
    save: bool = True


# --- measured by the supervisor, and by nodes on their hosts ----------------------------------

GPUS_PER_HOST = 1000


class GpuSample(msgspec.Struct, frozen=True, kw_only=True):
    """NVML's measurements of one GPU; None where the device does not support one.

    Utilisation is in percent, memory in bytes, power in watts, temperature in °C, clocks in MHz,
    energy in joules since the driver was loaded; `processes` maps pids to bytes (or None).
    `gpu` is NVML's index plus GPUS_PER_HOST times the host's number in the run.
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
        return self.gpu // GPUS_PER_HOST

    @property
    def index(self) -> int:
        return self.gpu % GPUS_PER_HOST


class HostSample(msgspec.Struct, frozen=True, kw_only=True):
    """One machine: cpu in percent of all cores, memory in bytes, load average of one minute.

    `host` is its index in `RunState.hosts`.
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
    """Samples of a node's host, GPUs and ranks at one moment; its host is always number 0.

    Where each rank has a task of its own, the first task of a host samples host and GPUs.
    """

    host: HostSample | None = None
    gpus: list[GpuSample] = []
    ranks: list[RankSample] = []


Message = (
    Hello
    | Phase
    | Facts
    | Window
    | Logged
    | RankEvaluation
    | ScriptSettings
    | RankFacts
    | Evaluation
    | Saved
    | Notice
    | NonFinite
    | Failure
    | Finished
    | Exited
    | Job
    | Requeue
    | Rendezvous
    | Welcome
    | Printed
    | NodeFinished
    | RunEnded
    | Attempt
    | Sampled
    | Stop
    | Stopping
    | StopSupport
    | StopAt
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def encode(event: Event) -> bytes:
    """Return a message as one line with its newline. NaN and infinities become null."""
    return _encoder.encode(event) + b"\n"


def decode(line: bytes | bytearray | memoryview) -> Message:
    """Return the message of a line; raises msgspec.ValidationError or DecodeError."""
    return _decoder.decode(line)


def as_dict(event: msgspec.Struct) -> dict[str, Any]:
    """Return all fields of a message or sample as plain data, for exports and --json.

    They have the names of the wire.
    """
    values = {
        field.encode_name: msgspec.to_builtins(getattr(event, field.name))
        for field in msgspec.structs.fields(event)
    }
    tag = event.__struct_config__.tag
    return {"type": tag, **values} if tag else values
