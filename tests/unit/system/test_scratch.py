"""The temporary folder of a run: removed with it, or by the next run where it was killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from distrain.runners.system import scratch
from distrain.runners.system.scratch import scratch_folder

OWNER = """
import sys, time
from distrain.runners.system.scratch import scratch_folder
with scratch_folder() as folder:
    print(folder, flush=True)
    time.sleep(600)
"""
NODE_AGENT = """
import os, time
from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.launchers.node import _record_folder
config = RunConfig(launcher=LAUNCHER)
with _record_folder("run", config, plan_here(config)):
    print(os.environ["DISTRAIN_SCRATCH"], flush=True)
    time.sleep(600)
"""
JOINED = "import os; os.environ.pop('DISTRAIN_RUN', None); LAUNCHER = 'torchrun'" + NODE_AGENT
SCHEDULED = "import os; os.environ['DISTRAIN_RUN'] = '/shared'; LAUNCHER = 'slurm'" + NODE_AGENT
# The supervisor is lost while the agent of torch waits for a host that does not answer.
LOST = """
import os, threading, time
from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.launchers import node
from distrain.runners.system.rank_identity import AgentIdentity
os.environ.pop("DISTRAIN_RUN", None)
node.LEAVE_S = 0.1
agent = node.NodeAgent(AgentIdentity(1))
config = RunConfig(launcher="torchrun")
with node._record_folder("run", config, plan_here(config)):
    print(os.environ["DISTRAIN_SCRATCH"], flush=True)
    threading.Thread(target=agent._end_ranks).start()
    time.sleep(600)
"""
# A process that is killed while it has a socket and a semaphore of multiprocessing.
CHILD = """
import multiprocessing, os, signal
from multiprocessing import util
from multiprocessing.connection import Listener
from distrain.runners.system.scratch import use_scratch_folder
use_scratch_folder()
listener = Listener(family="AF_UNIX")
lock = multiprocessing.get_context("spawn").Lock()
os.killpg(0, signal.SIGKILL)
"""


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of temporary files, whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def semaphores(folder: Path) -> list[Path]:
    return list(scratch.SEMAPHORES.glob(f"sem.mp-{folder.name}-*"))


def test_what_killed_processes_leave_is_removed_at_the_end(parent: Path) -> None:
    with scratch_folder() as folder:
        environment = {**os.environ, scratch.VARIABLE: str(folder)}
        command = [sys.executable, "-c", CHILD]
        done = subprocess.run(command, env=environment, start_new_session=True)
        assert done.returncode == -signal.SIGKILL
        assert any(folder.glob("listener-*"))
        assert semaphores(folder)
    assert not list(parent.iterdir())
    assert not semaphores(folder)


def test_an_agent_that_has_lost_the_supervisor_leaves_nothing_while_it_waits_for_a_host(
    parent: Path,
) -> None:
    token = parent / "token"
    token.touch(0o600)
    token.write_text("t" * 43)
    environment = {**os.environ, "DISTRAIN_TOKEN_FILE": str(token)}
    command = [sys.executable, "-c", LOST]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stdout.startswith(str(parent / "distrain-node-"))
    assert list(parent.iterdir()) == [token]


def start_rank(folder: Path) -> subprocess.Popen[str]:
    """Start a process that does not notice the end of its run."""
    environment = {**os.environ, scratch.VARIABLE: str(folder)}
    return subprocess.Popen(["sleep", "600"], env=environment, text=True)


@pytest.mark.parametrize(
    "program", [OWNER, JOINED, SCHEDULED], ids=["supervisor", "joined", "slurm"]
)
def test_the_next_run_removes_what_a_killed_one_has_left_and_nothing_else(
    program: str, parent: Path
) -> None:
    kept = parent / "distrain-mine"
    kept.mkdir(mode=0o700)
    owners = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        abandoned, used = (Path(each.stdout.readline().strip()) for each in owners if each.stdout)
        owners[0].kill()
        owners[0].wait()
        assert len(list(parent.iterdir())) == 3
        ranks = [start_rank(abandoned), start_rank(used)]
        owners += ranks
        with scratch_folder() as folder:
            assert set(parent.iterdir()) == {kept, used, folder}
        assert ranks[0].wait(60) == -signal.SIGKILL
        assert ranks[1].poll() is None
    finally:
        for owner in owners:
            owner.kill()
            owner.communicate()


def test_a_folder_whose_removal_was_interrupted_is_removed_by_the_next(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(folder: Path, **_: object) -> None:
        for file in sorted(folder.iterdir()):
            if file.is_file():
                file.unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        block = scratch_folder()
        folder = block.__enter__()
        (folder / "run").mkdir()
        patched.setattr("shutil.rmtree", interrupt)
        with pytest.raises(KeyboardInterrupt):
            block.__exit__(None, None, None)
    assert folder.exists()
    with scratch_folder():
        assert not folder.exists()


def test_what_another_host_has_made_stays_in_a_shared_folder(
    parent: Path,
) -> None:
    """On some file systems a lock of another host is not seen."""
    other = parent / "distrain-node-other"
    other.mkdir(mode=0o700)
    (other / scratch.LOCK).write_text("another-host")
    with scratch_folder():
        assert other.exists()
    (other / scratch.LOCK).write_text(socket.gethostname())
    with scratch_folder():
        assert not other.exists()
