"""Whether the supervisor of a live run still runs, and the sentences if it does not."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import msgspec

from distrain.runners.records.state import RunError, RunState
from distrain.runners.system.files import is_locked, last_modified
from distrain.runners.system.processes import is_running, is_suspended

LAUNCH_S = 60.0  # a run without a supervisor after this long will never have one
SILENT_S = 300.0  # network file systems show what was written within a minute or two
WRITTEN = ("run.json", "metrics.db", "metrics.db-wal")  # by the supervisor of a live run

LOST = "the supervisor exited unexpectedly (killed?); data up to that point is kept"
LOST_READ_ONLY = (
    "the supervisor exited unexpectedly (killed, or because the file system of the run's folder is "
    "read-only?); data up to that point is kept"
)
LOST_BY_SIGNAL = (
    "the supervisor was killed by {} (logs/supervisor.log shows where); data up to that point is "
    "kept"
)
NEVER_STARTED = "the supervisor never started; logs/supervisor.log may say why"
SILENT = (
    "the supervisor on {} has written nothing for five minutes, so it or its host is gone; data up "
    "to that point is kept"
)
SUSPENDED = (
    "the supervisor (process {0}) is suspended, and nothing is recorded; `kill -CONT {0}` "
    "continues it"
)
OUT_OF_SIGHT = "cannot be seen from here: it is in a container or belongs to another user"
HIDDEN = f"the supervisor (process {{}}) runs, but {OUT_OF_SIGHT}"
UNSUPERVISED = "the supervisor is gone while the job runs on; recover it with `distrain watch {}`"


def check_supervisor(state: RunState, folder: Path) -> RunState:
    """Return the state, as "failed" where it is live but its supervisor is gone.

    `reason` reports a supervisor that is suspended, or of which only the lock on the folder can be
    seen. A live state in a folder of another name is a copy, which no supervisor writes. Only
    processes of this host can be checked; one on another host, or in a container, must write.
    """
    if not state.live:
        return state
    if state.run_id != folder.name:
        reason = f"copied or renamed from {state.run_id} while that was {state.status}"
    elif state.host != socket.gethostname():
        if not _is_silent(state, folder):
            return state
        reason = SILENT.format(state.host)
    elif state.supervisor_pid is None:
        if time.time() - state.created < LAUNCH_S:
            return state
        reason = NEVER_STARTED
    elif is_supervised(state):
        if not is_suspended(state.supervisor_pid):
            return state
        return msgspec.structs.replace(state, reason=SUSPENDED.format(state.supervisor_pid))
    elif is_locked(folder):
        return msgspec.structs.replace(state, reason=HIDDEN.format(state.supervisor_pid))
    else:
        reason = LOST
    error = RunError(rank=None, type="SupervisorLost", message=reason)
    return msgspec.structs.replace(
        state, status="failed", error=error, reason=reason, waiting_for=[]
    )


def _is_silent(state: RunState, folder: Path) -> bool:
    """Return whether the supervisor on another host has written nothing for SILENT_S seconds.

    It touches run.json every minute, apart from what it records. Runs in a queue or of a
    scheduler's job are not judged.
    """
    is_sampled = state.status != "queued" and not (state.plan and state.plan.scheduled)
    is_silent = time.time() - last_modified(folder, WRITTEN) > SILENT_S
    return is_sampled and is_silent and not is_locked(folder)


def is_supervised(state: RunState) -> bool:
    """Return whether the supervisor's process exists; it ends a moment after the run."""
    pid = state.supervisor_pid
    started, since_boot = state.supervisor_started, state.supervisor_since_boot
    return pid is not None and is_running(pid, started, since_boot)
