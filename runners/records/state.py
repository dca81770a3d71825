"""run.json: the state of a run, as its supervisor last wrote it.

`supervisor_check` judges whether a live run is still supervised, `meta` owns meta.json, `folder`
creates a run's folder, `writer` and `reader` own metrics.db.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from distrain.runners import formatting
from distrain.runners.config.plan import Plan
from distrain.runners.errors import DistrainError
from distrain.runners.protocol.events import GPUS_PER_HOST, Facts, Int, Job
from distrain.runners.records.stall import Stall
from distrain.runners.records.untrusted import decode
from distrain.runners.system.files import read_regular, write_json
from distrain.runners.system.limits import LIMITS, explain

if TYPE_CHECKING:
    from distrain.runners.config.schema import RunConfig

FORMAT = 1
TRASH = ".trash"  # in a runs folder
IN_PLACE_S = 0.01  # run.json may be half written for so long: see write_state
Status = Literal["queued", "starting", "running", "stopping", "completed", "failed", "stopped"]
LIVE: tuple[Status, ...] = ("queued", "starting", "running", "stopping")
Pid = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class RunError(msgspec.Struct, frozen=True, kw_only=True):
    """The first failure of a run.

    `rank` is None where the failure belongs to no rank; `host` is where it happened, in a run on
    several hosts; `secondary` are the ranks that ended because of it; `usage` marks an error of
    the configuration.
    """

    rank: Int | None
    type: str
    message: str
    traceback: str = ""
    step: Int = 0
    secondary: list[Int] = msgspec.field(default_factory=list, name="collateral")
    usage: bool = False
    host: str = ""

    @property
    def origin(self) -> str:
        """The rank that failed first: "rank 3 on node2", or "rank 3"."""
        return f"rank {self.rank} on {self.host}" if self.host else f"rank {self.rank}"

    @property
    def log_name(self) -> str:
        """The name of the log that explains it best, as `distrain logs` takes it."""
        if self.rank is not None:
            return f"rank-{self.rank}"
        if self.type == "Hang":  # of all ranks
            return "rank-0"
        return "launcher" if self.type in ("LauncherFailed", "JobEnded") else "supervisor"


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """run.json. Times are Unix seconds.

    `hosts` are the names of the machines that train, in the order of the host numbers in samples.
    `group` is the id of the sweep that the run belongs to; a rerun of the run belongs to it too.
    `job` is the scheduler's job, if there is one. `attempts` counts restarts of the ranks.
    `supervisor_started` and `supervisor_since_boot` are its `start_times`, so that another process
    with a reused pid is not mistaken for the supervisor. `waiting_for` are sentences, while the run
    is queued or hosts have still to join. `stall` is set while ranks make no progress,
    `stall_ended` is the end of the last one. `summary` is set once the run has ended.
    """

    run_id: str
    format: int = FORMAT
    status: Status = "starting"
    created: float
    started: float | None = None
    ended: float | None = None
    host: str = ""
    hosts: list[str] = []
    job: Job | None = None
    attempts: Int = 0
    supervisor_pid: Pid | None = None
    supervisor_started: float | None = None
    supervisor_since_boot: float | None = None
    command: list[str] = []
    parent: str | None = None
    group: str = ""
    plan: Plan | None = None
    facts: Facts | None = None
    provenance: dict[str, Any] = {}
    error: RunError | None = None
    reason: str = ""
    waiting_for: list[str] = []
    stall: Stall | None = None
    stall_ended: float | None = None
    socket: str = ""
    summary: dict[str, Any] | None = None

    @property
    def live(self) -> bool:
        return self.status in LIVE

    @property
    def current_stall(self) -> Stall | None:
        """The stall that lasts, if there is one."""
        return self.stall if self.live else None

    @property
    def current_status(self) -> str:
        """The status, or "stalled" for a live run that makes no progress and is not stopping."""
        return "stalled" if self.current_stall and self.status != "stopping" else self.status

    @property
    def obstacle(self) -> str:
        """Why a live run makes no progress: it has stalled, or nothing is recorded; else ""."""
        if stall := self.current_stall:
            return stall.describe(time.time())
        return self.reason if self.live else ""

    @property
    def has_epochs(self) -> bool:
        """Whether the training data have epochs, which is unknown at first; a stream has none."""
        return self.facts is None or self.facts.has_epochs

    def trained(self, config: RunConfig) -> tuple[str, str]:
        """Return the names of network and data: those of the config, or of the task's classes."""
        facts = self.facts
        model, data = (config.model.name, config.data.name) if facts else config.trained
        model = (facts.model if facts else "") or model
        data = (facts.data if facts else "") or data
        return formatting.printable(model), formatting.printable(data)

    def workload(self, config: RunConfig) -> str:
        """Return what is trained: "mlp on digits", or the words of the script."""
        return (
            config.workload if config.is_script else " on ".join(filter(None, self.trained(config)))
        )

    def learning_rate(self, config: RunConfig) -> str:
        """Return the learning rate and the schedule that are used, as "0.05, cosine"."""
        facts, plan = self.facts, self.plan
        rate = (facts.lr if facts else 0.0) or (plan.lr if plan else config.train.lr)
        own = facts is not None and facts.has_own_schedule
        return f"{rate:g}, {'schedule of the task' if own else config.train.schedule}"

    def host_numbers(self, names: Mapping[int, str]) -> dict[int, int]:
        """Return the number of the host of each rank, from the name that each rank knows it by.

        Where several hosts have the same name, their ranks follow each other in equal shares.
        """
        numbers = {name: number for number, name in enumerate(self.hosts)}
        if self.plan and len(numbers) < len(self.hosts):
            each = max(self.plan.world_size // self.plan.nodes, 1)
            return {rank: min(rank // each, len(self.hosts) - 1) for rank in names}
        return {rank: numbers.get(name, 0) for rank, name in names.items()}

    def host_name(self, number: int) -> str:
        """Return the name of a sample's host: "the host", or of several e.g. "node-07"."""
        if len(self.hosts) > 1 and 0 <= number < len(self.hosts):
            return self.hosts[number]
        return "the host"

    def gpu_name(self, key: int) -> str:
        """Return the name of a sample's GPU: "GPU 0", or of several hosts "GPU 0 of node-07"."""
        number, index = divmod(key, GPUS_PER_HOST)
        return f"GPU {index} of {self.host_name(number)}" if len(self.hosts) > 1 else f"GPU {index}"


class _Format(msgspec.Struct):
    format: int


def write_state(folder: Path, state: RunState) -> None:
    """Write run.json, atomically where the disk has room for a second file. Raises OSError."""
    write_json(folder / "run.json", state, in_place=True)


def read_state(folder: Path) -> RunState:
    """Return run.json as it was written.

    Raises DistrainError where it is missing, broken, or of another format. A summary that is not
    valid is left out, as it can be computed again.
    """
    try:
        try:
            state = _decode_state(folder)
        except ValueError:  # half of what is being written in place
            time.sleep(IN_PLACE_S)
            state = _decode_state(folder)
    except ValueError as error:
        if "Invalid enum value" in str(error):
            raise newer_record(folder, f"run.json: {error}") from None
        raise not_a_record(folder, f"its run.json is broken ({error})") from None
    return msgspec.structs.replace(
        state,
        summary=state.summary if _is_valid_summary(state.summary) else None,
        provenance=known_provenance(state.provenance),
    )


class _Summary(msgspec.Struct):
    """What readers use of a summary; older versions did not write all of it."""

    status: str
    strategy: str
    launcher: str
    precision: str | None
    world_size: Int | None
    devices: list[str]
    steps: Int | None
    epochs: Int | None
    samples: Int | None
    samples_per_s: float | None
    duration_s: float | None
    eval: dict[str, float | None] | None
    nodes: Int | None = None
    attempts: Int = 0
    steps_again: Int = 0
    script: str = ""
    metrics: dict[str, float | None] = {}
    sources: dict[str, str] = {}
    error: dict[str, Int | str | None] = {}


def _is_valid_summary(summary: dict[str, Any] | None) -> bool:
    if not _fits(summary, _Summary):
        return False
    evaluation = summary["eval"] if summary else None
    return not evaluation or isinstance(evaluation.get("samples"), int)


class _Git(msgspec.Struct):
    commit: str = ""
    branch: str = ""
    dirty: bool | None = False
    diff_sha256: str = ""
    problem: str = ""


class _Host(msgspec.Struct):
    name: str | None = None
    system: str | None = None
    cpu: str | None = None
    cores: Int | None = None
    threads: Int | None = None
    usable_threads: Int | None = None
    memory: Int | None = None


_PROVENANCE: dict[str, Any] = {
    "cwd": str,
    "git": _Git | None,
    "versions": dict[str, str],
    "host": _Host | None,
    "environment": dict[str, str],
}


def known_provenance(provenance: dict[str, Any]) -> dict[str, Any]:
    """Return a provenance without the parts that do not have the types of `provenance.py`."""
    return {
        name: value
        for name, value in provenance.items()
        if name not in _PROVENANCE or _fits(value, _PROVENANCE[name])
    }


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _decode_state(folder: Path) -> RunState:
    """Return run.json. Raises ValueError where it is broken."""
    try:
        data = read_regular(f"{folder}/run.json")
    except FileNotFoundError:
        raise not_a_record(folder, "there is no run.json in it") from None
    except OSError as error:
        raise unreadable(folder, "run.json", error) from None
    written = decode(data, _Format).format
    if written != FORMAT:
        age = "a newer" if written > FORMAT else "an older"
        raise DistrainError(
            f"{folder} was written by {age} distrain "
            f"(format {written}, this one reads format {FORMAT})"
        )
    # The command is quoted for the shell where it is shown.
    return decode(data, RunState, unchanged=("command",))


def not_a_record(folder: Path, why: str | None) -> DistrainError:
    """Return the error that a folder cannot be read as a record, or is not there any more."""
    if not os.path.lexists(folder):
        if os.path.lexists(folder.parent / TRASH / folder.name):
            undo = f"`distrain rm --undo {folder.name}` restores it"
            return DistrainError(f"{folder.name} was moved to the trash; {undo}")
        return DistrainError(f"there is no folder {folder}")
    return DistrainError(f"{folder} is not a record: {why}")


def unreadable(folder: Path, name: str, error: OSError) -> DistrainError:
    """Return the error that a file of a record cannot be read, which may be no fault of it."""
    why = f"its {name}: {explain(error)}"
    if error.errno in LIMITS:
        return DistrainError(f"{folder} cannot be read now: {why}")
    return not_a_record(folder, why)


def newer_record(folder: Path, why: str) -> DistrainError:
    """Return the error that a record holds something that this version does not know."""
    return DistrainError(f"{folder} was written by a newer version of distrain ({why})")
