"""Launcher `env`: a scheduler has started `distrain run` once for each rank.

Every rank finds its identity in its environment. Rank 0 starts the run and creates the place at
which all ranks meet; there it publishes the address of the run's supervisor for the other ranks.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import DistrainError
from distrain.runners.launchers.command import JOIN, SHARE_TOKEN
from distrain.runners.launchers.joined_host import JoinedHost, join_run, print_state
from distrain.runners.launchers.node import NodeAgent
from distrain.runners.launchers.supervisor_link import SupervisorLink
from distrain.runners.protocol.client import (
    TOKEN_FILE_VARIABLE,
    connect,
    read_own_token,
    split_address,
)
from distrain.runners.protocol.events import Welcome
from distrain.runners.records.reader import Record
from distrain.runners.system import scheduler_env
from distrain.runners.system.files import open_regular
from distrain.runners.system.processes import die_with_parent, without_garbage_collection
from distrain.runners.system.rank_identity import AgentIdentity
from distrain.runners.system.scheduler_env import FILE, ScheduledRank

STORE_KEY = "distrain/report"  # of the published address, with the token in a second line
CHECK_S = 0.2
MOST_BYTES = 1 << 13  # of an address and a token


class OtherRank(JoinedHost):
    """The agent of any other rank; if it cannot take part, the run ends: nobody replaces it."""

    def __init__(self, position: ScheduledRank, meeting_place: str) -> None:
        super().__init__(_identity(position), meeting_place=meeting_place)
        self._position = position

    def _read_welcome(self, welcome: Welcome) -> tuple[RunConfig, Plan]:
        config, plan = super()._read_welcome(welcome)
        if self._position.world_size != plan.world_size:
            sizes = f"{self._position.world_size} here and {plan.world_size} on rank 0"
            raise DistrainError(f"WORLD_SIZE is {sizes}")
        return config, plan

    def _refuse(self, link: SupervisorLink, error: DistrainError) -> None:
        self._report_failure(link, self._position.rank, error, usage=True)


def _identity(position: ScheduledRank) -> AgentIdentity:
    return AgentIdentity(0 if position.rank == 0 else -1, position.rank, position.local_rank)


# --- rank 0 publishes where the run reports -------------------------------------------------------


@contextmanager
def publish_address(place: str, text: str) -> Iterator[None]:
    """Serve the store at which the ranks meet, with the supervisor's address, during the block.

    `place` of the store is HOST:PORT or file:///PATH; `text` is the address, with the token in a
    second line. Raises DistrainError.
    """
    if place.startswith(FILE):
        file = Path(place.removeprefix(FILE))
        with _publish_in_file(file, scheduler_env.report_file(place), text):
            yield
        return
    with without_garbage_collection():
        from torch.distributed import DistNetworkError, TCPStore
    host, port = split_address(place)
    try:
        store = TCPStore(host, port, is_master=True, wait_for_workers=False)
    except DistNetworkError as error:
        reason = str(error).splitlines()[0]
        raise DistrainError(f"the ranks cannot meet at {place}: {reason}") from None
    store.set(STORE_KEY, text)
    yield
    del store


@contextmanager
def _publish_in_file(store: Path, note: Path, text: str) -> Iterator[None]:
    """Write the address to a file next to the one at which the ranks meet.

    Replace the file of a run of this user that was killed; never touch any other file.
    """
    left = _read_note(note)
    if _is_live(left):
        raise DistrainError(f"another run meets at {store}")
    for file in (store, note):
        if os.path.lexists(file) and not left:
            reason = "exists and was not left by a run of yours"
            raise DistrainError(f"{file} {reason}: choose another file")
    draft = note.with_name(f"{note.name}.new")
    try:
        store.unlink(missing_ok=True)
        draft.unlink(missing_ok=True)
        draft.touch(0o600, exist_ok=False)
        draft.write_text(text)
        draft.replace(note)
        store.touch(0o600)  # before anybody else can: the ranks load torch first
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise DistrainError(f"the ranks cannot meet at {store}: {error.strerror}") from None
    try:
        yield
    finally:
        note.unlink(missing_ok=True)
        store.unlink(missing_ok=True)


# --- the other ranks read it ----------------------------------------------------------------------


def read_published(place: str, timeout_s: float) -> str:
    """Return what rank 0 has published; wait for it up to `timeout_s`. Raises DistrainError."""
    if place.startswith(FILE):
        text = _read_from_file(scheduler_env.report_file(place), timeout_s)
    else:
        text = _read_from_store(place, timeout_s)
    if text is None:
        raise DistrainError(
            f"rank 0 did not publish the run's address at {place} within {timeout_s:g} s "
            "(dist.join_timeout_s)"
        )
    return text


def _read_from_store(place: str, timeout_s: float) -> str | None:
    with without_garbage_collection():
        from torch.distributed import DistNetworkError, DistStoreError, TCPStore
    host, port = split_address(place)
    timeout = timedelta(seconds=timeout_s)
    try:
        store = TCPStore(host, port, is_master=False, timeout=timeout, wait_for_workers=False)
        return bytes(store.get(STORE_KEY)).decode()
    except (DistNetworkError, DistStoreError):
        return None


def _read_from_file(note: Path, timeout_s: float) -> str | None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if _is_live(text := _read_note(note)):
            return text
        time.sleep(CHECK_S)
    return None


def _read_note(note: Path) -> str:
    """Return what a run of this user has published; "" if there is no file, or another user's.

    Whoever listens at that address decides what the ranks execute.
    """
    with suppress(OSError, UnicodeDecodeError), open_regular(note) as file:
        # A network file system may map users, so only a new file shows what this user's ID is here.
        with tempfile.TemporaryFile(dir=note.parent) as own:
            is_own = os.fstat(file.fileno()).st_uid == os.fstat(own.fileno()).st_uid
        if is_own:
            return file.read(MOST_BYTES).decode()
    return ""


def _is_live(text: str) -> bool:
    """Return whether somebody listens at the published address."""
    if not text:
        return False
    try:
        connect(text.partition("\n")[0], CHECK_S).close()
    except OSError:
        return False
    return True


def main() -> int:
    """Run rank 0, or join it: with JOIN, an init method and a time limit in seconds."""
    if sys.argv[1] == JOIN:
        return join(sys.argv[2], float(sys.argv[3]))
    record = Record(Path(os.environ["DISTRAIN_RUN"]))
    place = scheduler_env.meeting_address(record.config.dist.init_method)
    token = read_own_token() if sys.argv[1] == SHARE_TOKEN else ""
    try:
        with publish_address(place, f"{os.environ['DISTRAIN_SOCKET']}\n{token}"):
            identity = _identity(ScheduledRank.of(os.environ))
            # It ends last, because it keeps the store.
            return NodeAgent(identity, is_child=True, meeting_place=place).work()
    except DistrainError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def join(method: str, timeout_s: float) -> int:
    """Take part in the run of rank 0; return the exit code."""
    die_with_parent()
    place = scheduler_env.meeting_address(method)
    print_state("waiting", f"for rank 0 at {place}")
    try:
        address, _, token = read_published(place, timeout_s).partition("\n")
    except DistrainError as error:
        print_state("failed", str(error))
        return error.exit_code
    if token:
        Path(os.environ[TOKEN_FILE_VARIABLE]).write_text(token)
    os.environ["DISTRAIN_SOCKET"] = address
    return join_run(OtherRank(ScheduledRank.of(os.environ), place))


if __name__ == "__main__":
    sys.exit(main())
