"""The folder of a bench: bench.toml, bench.json, a log, and the records of its runs."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any, Literal

import msgspec

from runners.bench.definition import Definition
from runners.errors import ConfigError, DistrainError, RunsFolderError
from runners.plan import Plan
from runners.processes import is_running
from runners.state import LAUNCH_S, check_printable, new_run_id, not_a_record, write_atomically

FORMAT = 1
DEFINITION, STATE, RUNS, LOG = "bench.toml", "bench.json", "runs", "bench.log"
LOCK = ".lock"  # held by the process that does it
QUEUE = "--queue"  # its argument
Status = Literal["starting", "running", "stopping", "completed", "failed", "stopped"]
LIVE: tuple[Status, ...] = ("starting", "running", "stopping")


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a round. `rate` is samples/s of the `seconds` after `warmup_s`; `took` is from
    launch to end; `others` are cores that were busy with what is no rank; `kind` and `diagnosis`
    are what was found of the run. The rest is as of a `Contestant`.
    """

    contestant: str
    round: int
    run_id: str
    rate: float
    seconds: float
    warmup_s: float
    steady: bool
    took: float
    phases: dict[str, float] = {}
    overlap: float | None = None
    host_memory: float | None = None
    device_memory: float | None = None
    cpu: float | None = None
    gpu: float | None = None
    others: float | None = None
    joules_per_sample: float | None = None
    seconds_to_target: float | None = None
    metrics: dict[str, float | None] = {}
    kind: str = ""
    diagnosis: str = ""


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """What is under way: the order of the round, and which run of it since when."""

    round: int
    order: list[str]
    contestant: str
    began: float
    run_id: str = ""

    @property
    def run(self) -> int:
        """Which run of the round it is, from 1 on."""
        return self.order.index(self.contestant) + 1


class BenchState(msgspec.Struct, frozen=True, kw_only=True):
    """bench.json. Times are Unix seconds. `out` are contestants that failed, and how;
    `rounds` are done as a whole, `measurements` are of these and of the one under way.
    """

    bench_id: str
    format: int = FORMAT
    name: str = ""
    status: Status = "starting"
    reason: str = ""
    created: float
    started: list[float] = []
    ended: float | None = None
    host: str = ""
    cwd: str = ""
    command: list[str] = []
    queue: bool = False
    plans: dict[str, Plan] = {}
    pid: int | None = None
    pid_started: float | None = None
    rounds: int = 0
    measurements: list[Measurement] = []
    out: dict[str, str] = {}
    now: Now | None = None
    warnings: list[str] = []
    provenance: dict[str, Any] = {}

    @property
    def live(self) -> bool:
        return self.status in LIVE


def create(
    runs_dir: Path,
    definition: Definition,
    plans: dict[str, Plan],
    *,
    name: str,
    cwd: str,
    command: list[str],
    queue: bool,
) -> Path:
    """Make the folder of a new bench; raises ConfigError for its name, or RunsFolderError."""
    check_printable(name)
    now = time.time()
    bench_id = new_run_id("bench", now)
    folder = runs_dir / bench_id
    try:
        (folder / RUNS).mkdir(parents=True)
        write_atomically(folder / DEFINITION, definition.to_toml().encode())
        write(
            folder,
            BenchState(
                bench_id=bench_id,
                name=name,
                created=now,
                host=socket.gethostname(),
                cwd=cwd,
                command=command,
                queue=queue,
                plans=plans,
            ),
        )
    except OSError as error:
        raise RunsFolderError(
            f"cannot write to the runs folder {runs_dir}: {error.strerror}; "
            "choose another with --runs-dir or $DISTRAIN_RUNS_DIR"
        ) from None
    return folder


def write(folder: Path, state: BenchState) -> None:
    data = msgspec.json.format(msgspec.json.encode(state), indent=2)
    write_atomically(folder / STATE, data + b"\n")


def read(folder: Path) -> BenchState:
    """bench.json, as "failed" where it is live but its process is gone; raises DistrainError."""
    try:
        state = msgspec.json.decode((folder / STATE).read_bytes(), type=BenchState)
    except OSError as error:
        raise not_a_record(folder, f"its {STATE}: {error.strerror}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise not_a_record(folder, f"its {STATE} is broken ({error})") from None
    if state.format != FORMAT:
        raise DistrainError(f"{folder} is of another distrain (format {state.format})")
    return _as_it_is(state)


def definition(folder: Path) -> Definition:
    """bench.toml; raises DistrainError where it is missing or broken."""
    try:
        return Definition.from_toml((folder / DEFINITION).read_text("utf-8"))
    except OSError as error:
        raise not_a_record(folder, f"its {DEFINITION}: {error.strerror}") from None
    except (ConfigError, UnicodeDecodeError) as error:
        raise not_a_record(folder, f"its {DEFINITION} does not hold: {error}") from None


def _as_it_is(state: BenchState) -> BenchState:
    if not state.live or state.host != socket.gethostname():
        return state
    if state.pid is None:
        if time.time() - state.created < LAUNCH_S:
            return state
        reason = f"it never started; {LOG} may say why"
    elif is_running(state.pid, state.pid_started):
        return state
    else:
        reason = "its process is gone (killed?); `distrain resume` goes on with the next round"
    return msgspec.structs.replace(state, status="failed", reason=reason, now=None)
