"""Requests of other processes to a run's supervisor, and the errors if it does not answer."""

from __future__ import annotations

import socket
import time

from distrain.runners.errors import DistrainError
from distrain.runners.protocol.client import ask_for_stacks, send_to_supervisor
from distrain.runners.protocol.events import Stacks, Stop
from distrain.runners.records.reader import Record
from distrain.runners.records.state import RunState
from distrain.runners.records.supervisor_check import is_supervised
from distrain.runners.session import POLL_S
from distrain.runners.system import processes

ENDING_S = 10.0  # from the end of its socket until a supervisor has recorded how the run ended
GONE_POLL_S = 0.02


def address_of(state: RunState) -> str:
    """Return where the supervisor listens; empty if the record names no socket of this host."""
    return state.socket if state.socket.startswith("unix:") else ""


def stop(record: Record, now: bool) -> None:
    """Ask a run to stop, a preset with a checkpoint, or with `now` to end at once; return.

    Raises DistrainError if it has ended, is still starting, does not answer or cannot be stopped.
    """
    state = record.state
    if not state.live:
        raise DistrainError(f"run {record.id} has ended: {state.status}")
    address = address_of(state)
    if not address:
        raise DistrainError(f"run {record.id} is still starting; try again in a moment")
    try:
        refusal = send_to_supervisor(address, Stop(now=now))
    except PermissionError:
        raise DistrainError(_explain_refusal(record)) from None
    except OSError as error:
        # One that listens no longer is about to record how the run has ended.
        seconds = 0.0 if isinstance(error, TimeoutError) else ENDING_S
        if not _ends_within(record, seconds):
            raise DistrainError(_explain_silence(record)) from None
        return
    if refusal:
        raise DistrainError(f"run {record.id} cannot be stopped from here: {refusal}")


def read_stacks(record: Record) -> list[Stacks]:
    """Return what each rank is doing, as far as it can be read; the record keeps it.

    Raises DistrainError if the run does not answer.
    """
    address = address_of(record.state)
    try:
        return ask_for_stacks(address) if address else []
    except PermissionError:
        raise DistrainError(_explain_refusal(record)) from None
    except OSError:
        raise DistrainError(_explain_silence(record)) from None


def wait_until_gone(record: Record) -> None:
    """Wait at most ENDING_S until a supervisor on this host has ended."""
    deadline = time.monotonic() + ENDING_S
    state = record.state
    if state.host == socket.gethostname():
        while is_supervised(state) and time.monotonic() < deadline:
            time.sleep(GONE_POLL_S)


def _ends_within(record: Record, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_live := record.state.live:
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    return not is_live


def _explain_refusal(record: Record) -> str:
    state = record.state
    supervisor = f"its supervisor (process {state.supervisor_pid} on {state.host})"
    return f"run {record.id}: {supervisor} belongs to another user, who alone can control it"


def _explain_silence(record: Record) -> str:
    """Return that the supervisor does not answer, why, and what to do about it."""
    state = record.state
    pid = state.supervisor_pid
    text = f"run {record.id}: its supervisor (process {pid} on {state.host}) does not answer"
    if pid is None or state.host != socket.gethostname() or not is_supervised(state):
        return f"{text} from here"
    is_observed = state.plan is not None and state.plan.observed
    ended = "the record, not the program" if is_observed else "the run with all its ranks"
    hint = "run the command again later"
    if processes.is_suspended(pid):
        text += " because it is suspended"
        hint = f"`kill -CONT {pid}` continues it"
    return f"{text}; {hint}, or `kill -KILL {pid}` ends {ended}"
