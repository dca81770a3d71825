"""`env`: another's scheduler has started `distrain run` for each rank, which finds its place in its
environment. Rank 0 begins the run and makes the store at which all meet, where the others learn
where the run reports.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from runners import rendezvous
from runners.config import RunConfig
from runners.connecting import TOKEN_FILE, connect, secret, split
from runners.errors import DistrainError
from runners.events import Event, Over, Welcome
from runners.launchers.guest import Guest, take_part, tell
from runners.launchers.node import Node
from runners.launchers.parent import Parent
from runners.launchers.place import Place
from runners.plan import Plan
from runners.processes import die_with_parent, without_collecting
from runners.record import Record
from runners.rendezvous import FILE, Task

KEY = "distrain/report"  # of the store: an address, and in a second line the token
LOOK_S = 0.2


class First(Node):
    """Rank 0, a child of the supervisor: it ends when all have, for the store ends with it."""

    def _train(self, parent: Parent, welcome: Welcome) -> int:
        code = super()._train(parent, welcome)
        self._answers.get()
        return code

    def _heard(self, event: Event) -> None:
        if isinstance(event, Over):
            self._answers.put(None)
        super()._heard(event)


class Other(Guest):
    """Any other rank. One that cannot take part ends the run: nobody can come in its place."""

    def __init__(self, task: Task, meeting: str) -> None:
        super().__init__(_place(task), meeting=meeting)
        self._task = task

    def _told(self, welcome: Welcome) -> tuple[RunConfig, Plan]:
        config, plan = super()._told(welcome)
        if self._task.world_size != plan.world_size:
            sizes = f"{self._task.world_size} here and {plan.world_size} where rank 0 is"
            raise DistrainError(f"WORLD_SIZE is {sizes}")
        return config, plan

    def _takes_no_part(self, parent: Parent, error: DistrainError) -> None:
        self._fails(parent, self._task.rank, error, usage=True)


def _place(task: Task) -> Place:
    return Place(0 if task.rank == 0 else -1, task.rank, task.local_rank)


@contextmanager
def told(meeting: str, text: str) -> Iterator[None]:
    """The place where all meet, while it is there, and at it a text for the other ranks. Raises
    DistrainError.
    """
    if meeting.startswith(FILE):
        with _told_by_file(Path(meeting.removeprefix(FILE)), rendezvous.note(meeting), text):
            yield
        return
    with without_collecting():
        from torch.distributed import DistNetworkError, TCPStore
    host, port = split(meeting)
    try:
        store = TCPStore(host, port, is_master=True, wait_for_workers=False)
    except DistNetworkError as error:
        why = str(error).splitlines()[0]
        raise DistrainError(f"the ranks cannot meet at {meeting}: {why}") from None
    store.set(KEY, text)
    yield
    del store


@contextmanager
def _told_by_file(store: Path, note: Path, text: str) -> Iterator[None]:
    """What a run that was killed has left is in nobody's way; any other file stays as it is."""
    if note.exists() and _is_live(note.read_text()):
        raise DistrainError(f"another run meets at {store}")
    if store.exists() and not note.exists():
        raise DistrainError(
            f"there is a file {store} already, and no run has left it: name another"
        )
    new = note.with_name(f"{note.name}.new")
    try:
        store.unlink(missing_ok=True)
        new.unlink(missing_ok=True)
        new.touch(0o600)
        new.write_text(text)
        new.replace(note)
    except OSError as error:
        raise DistrainError(f"the ranks cannot meet at {store}: {error.strerror}") from None
    try:
        yield
    finally:
        note.unlink(missing_ok=True)
        store.unlink(missing_ok=True)


def heard(meeting: str, patience: float) -> str:
    """What rank 0 has told, awaited for so many seconds; raises DistrainError."""
    text = _read(meeting, patience) if meeting.startswith(FILE) else _fetched(meeting, patience)
    if text is None:
        raise DistrainError(
            f"rank 0 did not tell at {meeting} within {patience:g} s (dist.join_timeout_s) where "
            "it reports"
        )
    return text


def _fetched(meeting: str, patience: float) -> str | None:
    with without_collecting():
        from torch.distributed import DistNetworkError, DistStoreError, TCPStore
    host, port = split(meeting)
    try:
        store = TCPStore(
            host, port, is_master=False, timeout=timedelta(seconds=patience), wait_for_workers=False
        )
        return bytes(store.get(KEY)).decode()
    except (DistNetworkError, DistStoreError):
        return None


def _read(meeting: str, patience: float) -> str | None:
    note, deadline = rendezvous.note(meeting), time.monotonic() + patience
    while time.monotonic() < deadline:
        if note.exists() and _is_live(text := note.read_text()):
            return text
        time.sleep(LOOK_S)
    return None


def _is_live(text: str) -> bool:
    """Whether somebody listens where a note says."""
    try:
        connect(text.partition("\n")[0], LOOK_S).close()
    except OSError:
        return False
    return True


def main() -> int:
    """Rank 0 with a token that the others know, or are `told`; or a rank that `joins` one that
    meets it by METHOD within SECONDS.
    """
    if sys.argv[1] == "joins":
        return join(sys.argv[2], float(sys.argv[3]))
    record = Record(Path(os.environ["DISTRAIN_RUN"]))
    meeting = rendezvous.place(record.config)
    token = secret() if sys.argv[1] == "told" else ""
    try:
        with told(meeting, f"{os.environ['DISTRAIN_SOCKET']}\n{token}"):
            return First(_place(Task.here()), first=True, meeting=meeting).work()
    except DistrainError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def join(method: str, patience: float) -> int:
    die_with_parent()
    meeting = rendezvous.place(RunConfig().with_changes({"dist.init_method": method}))
    tell("waiting", f"for rank 0 at {meeting}")
    try:
        address, _, token = heard(meeting, patience).partition("\n")
    except DistrainError as error:
        tell("failed", str(error))
        return error.exit_code
    if token:
        Path(os.environ[TOKEN_FILE]).write_text(token)
    os.environ["DISTRAIN_SOCKET"] = address
    return take_part(Other(Task.here(), meeting))


if __name__ == "__main__":
    sys.exit(main())
