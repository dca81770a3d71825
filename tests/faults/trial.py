"""A run that a case breaks: how it is started, its processes, and in which phase it is."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import psutil

from distrain import Record, all_runs
from tests.support.commands import sets

DISTRAIN = (sys.executable, "-m", "distrain")
MARK = "FAULT_TRIAL"  # the variable that all processes of a trial have
USER = Path(__file__).with_name("user")
EVERY = 20  # steps between two evaluations and checkpoints
SETTINGS: dict[str, Any] = {
    "devices": "cpu:2",
    "task.name": "held:make",
    "train.epochs": 100_000,
    "train.threads": 1,
    "train.batch_size": 32,
    "data.train_limit": 256,
    "data.eval_limit": 64,
    "eval.every_epochs": 0,
    "eval.every_steps": EVERY,
    "checkpoint.every_epochs": 0,
    "checkpoint.every_steps": EVERY,
}
REPORTING: dict[str, Any] = {
    "report.stall_s": 5,
    "report.sample_s": 0.5,
    "report.stop_timeout_s": 20,
}
LAUNCHERS: dict[str, dict[str, Any]] = {
    "torchrun": {"strategy": "ddp", "launcher": "torchrun"},
    "spawn": {"strategy": "ddp", "launcher": "spawn"},
    "horovod": {"strategy": "horovod", "launcher": "horovodrun"},
    "slurm": {
        "strategy": "ddp",
        "launcher": "slurm",
        "devices": "auto",
        "slurm.nodes": 2,
        "slurm.poll_s": 0.5,
    },
}
PATIENCE_S = 120.0


class FaultError(Exception):
    """The case could not be carried out, or did not end as it should. The message says why."""


class Trial:
    """One run in a folder of its own, with its own temporary folder, queue and runs folder."""

    def __init__(
        self, folder: Path, held: Mapping[str, Any], environment: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.user = folder / "user"
        self.runs = folder / "runs"
        self.tmp = folder / "tmp"
        shutil.copytree(
            USER, self.user, ignore=shutil.ignore_patterns("__init__.py", "__pycache__")
        )
        self.tmp.mkdir(parents=True)
        self.hold(held)
        self.environment = {
            **{key: value for key, value in os.environ.items() if key != "COVERAGE_PROCESS_START"},
            MARK: str(folder),
            "PYTHONPATH": str(self.user),
            "DISTRAIN_RUNS_DIR": str(self.runs),
            "DISTRAIN_CLAIMS_DIR": str(folder / "claims"),
            "TMPDIR": str(self.tmp),
            "OMP_NUM_THREADS": "1",
            **(environment or {}),
        }
        self.viewer: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def hold(self, held: Mapping[str, Any]) -> None:
        (self.user / "held.json").write_text(json.dumps(held))

    # --- commands ------------------------------------------------------------------------------

    def start(self, *words: str, **options: Any) -> None:
        """Start `distrain run` with these words, and follow it."""
        self.output = (self.folder / "stdout").open("wb")
        self.errors = (self.folder / "stderr").open("wb")
        self.viewer = subprocess.Popen(
            [*DISTRAIN, "run", *words, "--json"],
            cwd=self.user,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.errors,
            start_new_session=True,
            **options,
        )

    def distrain(
        self, *words: str, seconds: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run another command to its end."""
        return subprocess.run(
            [*DISTRAIN, *words],
            cwd=self.user,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    @property
    def printed(self) -> str:
        """What `distrain run` has printed on stderr."""
        return (self.folder / "stderr").read_text(errors="replace")

    # --- processes -----------------------------------------------------------------------------

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the trial, apart from this one."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                is_own = process.environ().get(MARK) == str(self.folder)
                if is_own and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def rank(self, rank: int) -> psutil.Process:
        return psutil.Process(
            wait_until(lambda: [r.pid for r in self.record.ranks() if r.rank == rank and r.pid])[0]
        )

    def loader(self, rank: int) -> psutil.Process:
        """Return a loader process of this rank."""
        return wait_until(lambda: self.rank(rank).children())[0]

    def supervisor(self) -> psutil.Process:
        return psutil.Process(wait_until(lambda: self.record.state.supervisor_pid))

    def launcher(self) -> psutil.Process:
        supervisor = self.supervisor()

        def found() -> list[psutil.Process]:
            return [p for p in supervisor.children() if ".launchers." in " ".join(p.cmdline())]

        return wait_until(found)[0]

    # --- the run -------------------------------------------------------------------------------

    @property
    def record(self) -> Record:
        """The first run's record; waits until there is one."""
        if not hasattr(self, "_record"):
            runs = wait_until(lambda: self.runs.exists() and all_runs(self.runs))
            self._record = runs[0].record
        return self._record

    def phase(self, rank: int) -> tuple[str, int]:
        """Return the phase and the step of a rank; no phase before it is known."""
        try:
            phase, step = (self.user / f"rank-{rank}.phase").read_text().split()
        except FileNotFoundError:
            return "", 0
        return phase, int(step)

    def wait_for_end(self, seconds: float) -> float:
        """Wait until the run has ended, and return the time. Raises FaultError."""
        deadline = time.time() + seconds
        while self.record.state.live:
            if time.time() > deadline:
                state = self.record.state
                raise FaultError(f"is still {state.status} after {seconds:.0f} s ({state.stall})")
            time.sleep(0.1)
        return time.time()


def words_of(launcher: str, **changes: Any) -> list[str]:
    """Return the words after `distrain run` that start the held task; `__` stands for a dot."""
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    if launcher == "script":
        own = {key: value for key, value in dotted.items() if key.startswith("report.")}
        return ["--devices", "cpu:2", *sets({**REPORTING, **own}), "train.py"]
    config = {**SETTINGS, **REPORTING, **LAUNCHERS[launcher], **dotted}
    return ["ddp", *sets(config)]


def wait_until(holds: Callable[[], Any], seconds: float = PATIENCE_S) -> Any:
    """Return the first true value. Raises FaultError after so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(psutil.NoSuchProcess):
            if answer := holds():
                return answer
        time.sleep(0.02)
    raise FaultError(f"nothing within {seconds:.0f} s: {holds.__qualname__}")


@contextlib.contextmanager
def small_disk(folder: Path, options: str) -> Iterator[None]:
    """Mount a small file system at a folder during the block."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
