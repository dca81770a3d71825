"""The order of the device queue, as people see and change it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from distrain.runners.errors import DistrainError
from distrain.runners.records.state import RunState, read_state
from distrain.runners.supervision.device_queue import (
    QueueEntry,
    exclusive_access,
    live_entries,
    obstacles_for,
    queue_folder,
    write_entry,
)
from distrain.runners.system.processes import is_suspended

Step = Literal["up", "down", "first", "last"]


class QueuedRun(NamedTuple):
    """A run that uses devices of this host, or waits for them.

    `place` counts the waiting runs from 1; None for one that has started. `waiting_for` are
    sentences. `state` is None where the record cannot be read.
    """

    entry: QueueEntry
    place: int | None
    waiting_for: Sequence[str]
    state: RunState | None

    @property
    def devices(self) -> str:
        """Return "GPU 0, 1" or "CPU, 2 cores"; "" for a run that needs none of this host."""
        if self.entry.gpus:
            return f"GPU {', '.join(map(str, sorted(self.entry.gpus.values())))}"
        cores = self.entry.cores
        return f"CPU, {cores:,} {'core' if cores == 1 else 'cores'}" if cores else ""


def read_queue() -> list[QueuedRun]:
    """Return the runs of this user on this host: those that train, then the queue in order.

    Raises DistrainError where the queue's folder cannot be used.
    """
    entries = _read_entries()
    waiting = [entry for entry in entries if entry.waiting]
    return [
        *(_describe(entry, entries, None) for entry in entries if not entry.waiting),
        *(_describe(entry, entries, place) for place, entry in enumerate(waiting, 1)),
    ]


def _read_entries() -> list[QueueEntry]:
    folder = queue_folder()
    with exclusive_access(folder):
        return sorted(live_entries(folder), key=lambda entry: entry.order)


def _describe(entry: QueueEntry, entries: Sequence[QueueEntry], place: int | None) -> QueuedRun:
    try:
        state = read_state(Path(entry.dir))
    except DistrainError:
        state = None
    obstacles: Sequence[str] = ()
    if place is not None and is_suspended(entry.pid):
        text = f"its supervisor (process {entry.pid}) is suspended"
        obstacles = [f"{text}; `kill -CONT {entry.pid}` continues it"]
    elif place is not None:
        others = [other for other in entries if other is not entry]
        # Other programs on a GPU are known to the supervisor, which records them.
        recorded = state.waiting_for if state else ()
        obstacles = obstacles_for(entry, others, {}) or recorded
    return QueuedRun(entry, place, obstacles, state)


def move(run_id: str, step: Step) -> int:
    """Move a waiting run in the queue and return its new place, from 1.

    Supervisors look at their position before each decision, and decide one at a time; so a move
    takes effect at once, and a run that has started by then is not moved. Raises DistrainError.
    """
    folder = queue_folder()
    with exclusive_access(folder):
        entries = sorted(live_entries(folder), key=lambda entry: entry.order)
        waiting = [entry for entry in entries if entry.waiting]
        at = next((n for n, entry in enumerate(waiting) if entry.run_id == run_id), None)
        if at is None:
            has_started = any(entry.run_id == run_id for entry in entries)
            why = "has started and cannot be moved" if has_started else "is not in the queue"
            raise DistrainError(f"run {run_id} {why}")
        last = len(waiting) - 1
        wanted = {"up": max(at - 1, 0), "down": min(at + 1, last), "first": 0, "last": last}[step]
        order = [*waiting]
        order.insert(wanted, order.pop(at))
        changed = [
            (entry, msgspec.structs.replace(entry, position=before.position))
            for entry, before in zip(order, waiting, strict=True)
            if entry is not before
        ]
        for entry, _ in changed:
            if not entry.movable:
                text = "was queued by an earlier version of distrain and keeps its place"
                raise DistrainError(f"run {entry.run_id} {text}")
        for _, entry in changed:
            _replace(folder, entry)
        return wanted + 1


def _replace(folder: Path, entry: QueueEntry) -> None:
    file = os.open(folder / f"{entry.run_id}.json", os.O_RDWR)
    try:
        write_entry(file, entry)
    finally:
        os.close(file)
