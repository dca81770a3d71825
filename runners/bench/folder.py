"""The folder of a bench: bench.toml, bench.json, a log, and the records of its runs."""

from __future__ import annotations

import shutil
import socket
import time
from pathlib import Path

import msgspec

from distrain.runners.bench.definition import Definition
from distrain.runners.bench.state import FORMAT, BenchState
from distrain.runners.config.plan import Plan
from distrain.runners.errors import ConfigError, DistrainError, RunsFolderError
from distrain.runners.records.meta import check_printable
from distrain.runners.records.run_ids import new_run_id
from distrain.runners.records.state import known_provenance, not_a_record, read_state
from distrain.runners.records.supervisor_check import (
    LAUNCH_S,
    OUT_OF_SIGHT,
    SILENT_S,
    WRITTEN,
    check_supervisor,
)
from distrain.runners.records.untrusted import decode
from distrain.runners.system.files import (
    is_locked,
    last_modified,
    read_regular,
    write_atomically,
    write_json,
)
from distrain.runners.system.processes import is_running, is_suspended

DEFINITION = "bench.toml"
STATE = "bench.json"
RUNS = "runs"
LOG = "bench.log"
LOCK = ".lock"  # held by the process of the bench
QUEUE = "--queue"  # an argument of this process


def create_bench(
    runs_dir: Path,
    definition: Definition,
    plans: dict[str, Plan],
    *,
    name: str,
    cwd: str,
    command: list[str],
    queue: bool,
) -> Path:
    """Create the folder of a new bench and return it.

    Raises ConfigError if the name is not printable, RunsFolderError if the folder is not writable.
    """
    check_printable(name)
    now = time.time()
    bench_id = new_run_id("bench", now)
    folder = runs_dir / bench_id
    state = BenchState(
        bench_id=bench_id,
        name=name,
        created=now,
        host=socket.gethostname(),
        cwd=cwd,
        command=command,
        queue=queue,
        plans=plans,
    )
    try:
        folder.mkdir(parents=True)
        try:
            (folder / RUNS).mkdir()
            write_atomically(folder / DEFINITION, definition.to_toml().encode())
            write_bench_state(folder, state)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)  # half of a bench
            raise
    except OSError as error:
        raise RunsFolderError(
            f"cannot write to the runs folder {runs_dir}: {error.strerror}; "
            "choose another with --runs-dir or $DISTRAIN_RUNS_DIR"
        ) from None
    return folder


def write_bench_state(folder: Path, state: BenchState, *, in_place: bool = False) -> None:
    """Replace bench.json, with `in_place` on a full disk too. Raises OSError."""
    write_json(folder / STATE, state, in_place=in_place)


def read_bench_state(folder: Path) -> BenchState:
    """Return bench.json, as "failed" if it is live but its process is gone.

    Raises DistrainError if it is missing, broken, or of a different format.
    """
    stored = _read_stored(folder)
    state = _check_process(stored, folder)
    if stored.live and not state.live:  # its process may have ended it since it was read
        state = _check_process(_read_stored(folder), folder)
    return state


def _read_stored(folder: Path) -> BenchState:
    try:
        state = decode(read_regular(folder / STATE), BenchState, unchanged=("command",))
    except OSError as error:
        raise not_a_record(folder, f"its {STATE}: {error.strerror}") from None
    except ValueError as error:
        raise not_a_record(folder, f"its {STATE} is broken ({error})") from None
    if state.format != FORMAT:
        raise DistrainError(
            f"{folder} was written by another version of distrain (format {state.format})"
        )
    provenance = known_provenance(state.provenance)
    return msgspec.structs.replace(state, provenance=provenance)


def read_definition(folder: Path) -> Definition:
    """Return bench.toml. Raises DistrainError if it is missing or broken."""
    try:
        return Definition.from_toml(read_regular(folder / DEFINITION).decode())
    except OSError as error:
        raise not_a_record(folder, f"its {DEFINITION}: {error.strerror}") from None
    except (ConfigError, UnicodeDecodeError) as error:
        raise not_a_record(folder, f"its {DEFINITION} is invalid: {error}") from None


def has_process(state: BenchState) -> bool:
    """Return whether the process of a live bench of this host is there."""
    if not state.live or state.pid is None or state.host != socket.gethostname():
        return False
    return is_running(state.pid, state.pid_started, state.pid_since_boot)


def _check_process(state: BenchState, folder: Path) -> BenchState:
    if not state.live:
        return state
    if state.host != socket.gethostname():
        if not _is_silent(state, folder):
            return state
        reason = f"its process on {state.host} has written nothing for five minutes, so it or its "
        reason += "host is gone; `distrain resume` continues with the next round"
    elif has_process(state):
        pid = state.pid
        if pid is None or not is_suspended(pid):
            return state
        reason = f"its process {pid} is suspended; `kill -CONT {pid}` continues it"
        return msgspec.structs.replace(state, reason=reason)
    elif state.pid is None:
        if time.time() - state.created < LAUNCH_S:
            return state
        reason = f"it never started; see {LOG}"
    elif is_locked(folder / LOCK):
        reason = f"its process {state.pid} runs, but {OUT_OF_SIGHT}"
        return msgspec.structs.replace(state, reason=reason)
    else:
        reason = "its process is gone (killed?); `distrain resume` continues with the next round"
    return msgspec.structs.replace(state, status="failed", reason=reason, current=None)


def _is_silent(state: BenchState, folder: Path) -> bool:
    """Return whether nothing on another host has written to a bench for SILENT_S seconds.

    Its process writes where a run begins and ends, and in between the run's supervisor does.
    """
    written = last_modified(folder, [STATE])
    run = folder / RUNS / state.current.run_id if state.current and state.current.run_id else None
    if run:
        written = max(written, last_modified(run, WRITTEN))
    if time.time() - written < SILENT_S or is_locked(folder / LOCK):
        return False
    try:
        return run is None or not check_supervisor(read_state(run), run).live
    except DistrainError:  # of a record that cannot be read
        return True
