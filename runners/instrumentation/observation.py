"""Records a program that distrain did not start: its rank 0 starts an observer of the run.

The observer is a process that owns only the record. No rank waits for another one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from distrain.runners.instrumentation.joined_rank import JoinedRank
from distrain.runners.instrumentation.plain_values import to_name, to_text
from distrain.runners.instrumentation.position import Position, find_position, is_in_run
from distrain.runners.protocol.client import read_own_token
from distrain.runners.system import observers
from distrain.runners.system.observers import ObservationRequest

OBSERVER_MODULE = "distrain.runners.supervision.observer"
# HOST:PORT of the observer, for programs with ranks on several hosts; all of them set it.
ADDRESS_VARIABLE = "DISTRAIN_OBSERVER"
# What tells one start of a program from another; all ranks of a start have the same values.
JOB_VARIABLES = (
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_RESTART_COUNT",
    "PMIX_NAMESPACE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
START_S = 30.0  # for the observer to come up


class Observation(JoinedRank):
    """This process as a rank of an observed run. Raises OSError if no observer can be started."""

    _count = 0  # of the runs of this process

    def __init__(self, position: Position, name: str, on_lost: Callable[[str], None]) -> None:
        Observation._count += 1
        self._key = _key(position, Observation._count)
        self._address = os.environ.get(ADDRESS_VARIABLE, "")
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        if position.rank == 0:
            self._start_observer(position, name)
        token = "" if self._process or not self._address else read_own_token()
        super().__init__(position, self._find, on_lost, token)

    @property
    def folder(self) -> Path | None:
        """The folder of the run. Rank 0 waits for it; on others it may not be known yet."""
        if self._folder is None and self._process:
            self._reporter.has_tried.wait(START_S)
        return self._folder

    def _start_observer(self, position: Position, name: str) -> None:
        words, is_module = _program()
        request = ObservationRequest(
            key=self._key,
            pid=os.getpid(),
            started=time.time(),
            words=[*map(to_text, words)],
            is_module=is_module,
            name=to_name(name),
            world_size=position.world_size,
            local_size=position.local_size,
            started_by=_started_by(position),
            listen=self._address,
        )
        observers.forget(self._key)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", OBSERVER_MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin
        self._process.stdin.write(msgspec.json.encode(request))
        self._process.stdin.close()

    def _find(self) -> str | None:
        """Return the address of the observer once it listens. Called in the reporting thread."""
        if self._address and not self._process:
            return f"tcp:{self._address}"
        # The observer detaches itself: the process that was started ends once it listens.
        code = self._process.poll() if self._process else 0
        if code:
            raise OSError  # the observer has printed the reason
        found = observers.look_up(self._key) if code == 0 else None
        if found:
            self._folder = Path(found.dir)
            return found.address
        return None


def join_run(
    name: str, rank: int | None, world_size: int | None, on_lost: Callable[[str], None]
) -> JoinedRank | None:
    """Make this process a rank of the run that it belongs to, else of a new one called `name`.

    Return None if it is no rank. Raises ConfigError if `rank` and `world_size` do not fit,
    DistrainError or OSError if no observer can be started.
    """
    position = find_position(rank, world_size)
    if position is None:
        return None
    if is_in_run():
        address = os.environ["DISTRAIN_SOCKET"]
        return JoinedRank(position, lambda: address, on_lost, read_own_token())
    return Observation(position, name, on_lost)


def _key(position: Position, count: int) -> str:
    """Return what the ranks of a start of the program on this host have in common."""
    if position.world_size == 1:
        return f"process {os.getpid()} run {count}"
    values = [f"{name}={os.environ[name]}" for name in JOB_VARIABLES if name in os.environ]
    if not values:  # processes that the program has started by itself
        values = [f"parent={os.getppid()}"]
    return " ".join([*values, f"run {count}"])


def _started_by(position: Position) -> str:
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return "torchrun"
    return "inline" if position.world_size == 1 else "env"


def _program() -> tuple[list[str], bool]:
    """Return the program of this process with its arguments, and whether it is a module."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    arguments = sys.argv[1:]
    if "ipykernel" in sys.modules:
        return [os.environ.get("JPY_SESSION_NAME", "notebook")], False
    if spec is not None and spec.name != "__main__":
        return [spec.name.removesuffix(".__main__"), *arguments], True
    name = sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c") else "python"
    return [name, *arguments], False
