"""Ending real processes, gracefully or by force; each tree has its own root process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from distrain.runners.system.processes import (
    OWNER,
    is_running,
    owner_is_gone,
    owner_variables,
    run_detached,
    start,
    start_times,
)
from tests.support.runs import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")

PATIENCE_S = 60.0


@pytest.fixture
def python() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def script(started: list[subprocess.Popen[str]], code: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    started.append(process)
    return process


def lines_of(process: subprocess.Popen[str]) -> list[str]:
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    return out.splitlines()


PRELUDE = """
import os, signal, subprocess, sys, time
from signal import SIGINT, SIGKILL, SIGTERM
from distrain.runners.system.processes import (
    accept_sigterm_from_parent, adopt_orphans, catch_user_signals, descendants, die_with_parent,
    end_descendants, ignore_user_signals
)

def child(code):
    "A child that has run `code` and then sleeps; it says so by one byte."
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        for number in (SIGINT, SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        exec(code)
        os.write(writing, b'!')
        time.sleep(1000)
        os._exit(0)
    assert os.read(reading, 1)
    return pid

def code_of(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

IGNORES_INT = 'signal.signal(SIGINT, signal.SIG_IGN)'
IGNORES_ALL = IGNORES_INT + '; signal.signal(SIGTERM, signal.SIG_IGN)'
"""


def test_each_descendant_ends_by_the_first_signal_that_it_does_not_ignore(
    python: list[subprocess.Popen[str]],
) -> None:
    parent = script(
        python,
        """
        pids = [child(code) for code in ('', IGNORES_INT, IGNORES_ALL)]
        end_descendants([(SIGINT, 1.0), (SIGTERM, 1.0), (SIGKILL, 60.0)])
        print(descendants(), *map(code_of, pids), sep='\\n')
        """,
    )
    codes = [str(-number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)]
    assert lines_of(parent) == ["[]", *codes]


def test_a_descendant_of_another_user_does_not_spare_the_others(
    python: list[subprocess.Popen[str]],
) -> None:
    parent = script(
        python,
        """
        import psutil
        pids = [child('') for _ in range(3)]
        send = psutil.Process.send_signal
        def send_to_own(process, number):
            if process.pid == pids[1]:
                raise psutil.AccessDenied(process.pid)
            send(process, number)
        psutil.Process.send_signal = send_to_own
        end_descendants([(SIGTERM, 0.1)])
        os.kill(pids[1], SIGKILL)
        print(*map(code_of, pids), sep='\\n')
        """,
    )
    terminated, killed = str(-signal.SIGTERM), str(-signal.SIGKILL)
    assert lines_of(parent) == [terminated, killed, terminated]


def test_no_signal_is_sent_once_all_have_ended(python: list[subprocess.Popen[str]]) -> None:
    parent = script(
        python,
        """
        pid = child('')
        end_descendants([(SIGINT, 60.0), (None, 60.0)])
        print(code_of(pid))
        end_descendants([(None, 60.0)])
        """,
    )
    assert lines_of(parent) == [str(-signal.SIGINT)]


def test_an_adopted_orphan_is_ended_too(python: list[subprocess.Popen[str]]) -> None:
    # given a grandchild in its own session, whose parent has ended
    parent = script(
        python,
        """
        adopt_orphans()
        reading, writing = os.pipe()
        middle = os.fork()
        if not middle:
            os.setsid()
            os.write(writing, b'%d' % child(IGNORES_ALL))
            os._exit(0)
        os.waitpid(middle, 0)
        orphan = int(os.read(reading, 20))
        print([process.pid for process in descendants()] == [orphan])
        end_descendants([(SIGTERM, 0.2), (SIGKILL, 60.0)])
        print(code_of(orphan))
        """,
    )
    # then it is found and ended
    assert lines_of(parent) == ["True", str(-signal.SIGKILL)]


def test_shared_memory_of_torch_is_removed_after_its_processes_were_killed(
    python: list[subprocess.Popen[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where torch's manager has its socket
    parent = script(
        python,
        """
        import glob
        adopt_orphans()
        pid = child(
            'import torch; torch.multiprocessing.set_sharing_strategy("file_system"); '
            'kept = torch.ones(3).share_memory_()'
        )
        print(bool(glob.glob(f'/dev/shm/torch_{pid}_*')))
        end_descendants([(SIGTERM, 60.0), (SIGKILL, 60.0)])
        print(code_of(pid), pid)
        """,
    )
    was_shared, code, pid = " ".join(lines_of(parent)).split()
    assert (was_shared, int(code)) == ("True", -signal.SIGTERM)
    wait_until(lambda: not [*Path("/dev/shm").glob(f"torch_{pid}_*"), *tmp_path.iterdir()])


def test_a_process_that_starts_meanwhile_is_ended_by_the_next_signal(
    python: list[subprocess.Popen[str]],
) -> None:
    # given a child that starts another when it gets a signal
    parent = script(
        python,
        """
        adopt_orphans()
        more = 'signal.signal(SIGTERM, lambda *_: os._exit(0 if child(IGNORES_ALL) else 1))'
        pid = child(more)
        end_descendants([(SIGTERM, 3.0), (SIGKILL, 60.0)])
        print(code_of(pid), descendants())
        """,
    )
    assert lines_of(parent) == ["0 []"]


def test_a_child_dies_with_its_parent(python: list[subprocess.Popen[str]]) -> None:
    parent = script(
        python,
        """
        pid = child(IGNORES_ALL + '; die_with_parent(os.getppid())')
        print(pid, flush=True)
        time.sleep(1000)
        """,
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    psutil.wait_procs([child], timeout=PATIENCE_S)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_child_whose_parent_has_already_ended_ends_at_once() -> None:
    code = PRELUDE + "die_with_parent(os.getppid() + 1); print('still here')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_signals_for_programs_of_users_do_not_end_loader_processes(
    python: list[subprocess.Popen[str]], number: signal.Signals
) -> None:
    """A loader process, or the server that forks it, is a new program."""
    parent = script(
        python,
        f"""
        ignore_user_signals()
        code = 'import os; os.kill(os.getpid(), {number}); os.kill(os.getppid(), {number})'
        print(subprocess.run([sys.executable, '-c', code]).returncode)
        """,
    )
    assert lines_of(parent) == ["0"]


@pytest.mark.parametrize(("before", "code"), [("SIG_DFL", -signal.SIGUSR1), ("SIG_IGN", 0)])
def test_programs_handle_signals_for_users_as_those_that_started_the_command(
    python: list[subprocess.Popen[str]], before: str, code: int
) -> None:
    """Whoever has started it may ignore them, as a shell after `trap '' USR1`."""
    parent = script(
        python,
        f"""
        signal.signal(signal.SIGUSR1, signal.{before})
        catch_user_signals()
        os.kill(os.getpid(), signal.SIGUSR1)
        code = 'import os, signal; os.kill(os.getpid(), signal.SIGUSR1)'
        print(subprocess.run([sys.executable, '-c', code]).returncode)
        """,
    )
    assert lines_of(parent) == [str(int(code))]


def test_a_signal_from_another_process_than_the_parent_is_ignored(
    python: list[subprocess.Popen[str]],
) -> None:
    parent = script(
        python,
        """
        pid = child('accept_sigterm_from_parent()')
        print(pid, flush=True)
        sys.stdin.readline()
        while 'ShdPnd:\t' + 16 * '0' not in open(f'/proc/{pid}/status').read():
            time.sleep(0.01)  # two that wait are one
        print(os.waitpid(pid, os.WNOHANG), flush=True)
        os.kill(pid, SIGTERM)
        print(code_of(pid))
        """,
    )
    assert parent.stdout is not None
    os.kill(int(parent.stdout.readline()), signal.SIGTERM)
    assert parent.stdin is not None
    parent.stdin.write("\n")
    assert lines_of(parent) == ["(0, 0)", str(-signal.SIGTERM)]


def test_a_process_is_the_same_after_the_clock_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWNER, owner_variables()[OWNER])
    pid = os.getpid()
    started, since_boot = start_times(pid)
    boot_time = psutil.boot_time()
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: boot_time + 3600)
    assert start_times(pid) == (pytest.approx(started + 3600), since_boot)
    assert is_running(pid, started, since_boot)
    assert not owner_is_gone()
    assert not is_running(pid, started, (since_boot or 0) + 0.01)  # another one with its pid
    assert not is_running(pid, started)  # as earlier versions have recorded it


def test_a_process_that_has_ended_has_no_descendants() -> None:
    from distrain.runners.system.processes import descendants

    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert descendants(gone.pid) == []
    assert os.getpid() not in [process.pid for process in descendants()]


# --- those that detach themselves -------------------------------------------------------------


INTERRUPTED_ONCE = """
import os, signal, sys
with open("begun", "a") as begun:
    begun.write("x")
if os.path.getsize("begun") == 1:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
sys.exit(int(sys.argv[1]))
"""


def test_ctrl_c_during_the_start_of_a_detached_process_reaches_only_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "interrupted_once.py").write_text(INTERRUPTED_ONCE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = start("interrupted_once", "7", cwd=str(tmp_path))
    assert code == 7
    assert (tmp_path / "begun").read_text() == "xx"


@pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")  # it is not waited for
def test_an_error_in_the_caller_meanwhile_does_not_end_a_detached_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ArithmeticError

    (tmp_path / "signalling.py").write_text(
        "import os, signal, time\n"
        "os.kill(os.getppid(), signal.SIGUSR1)\n"
        "time.sleep(1)\n"
        "os.mkdir('gone_on')"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    default = signal.signal(signal.SIGUSR1, fail)
    try:
        with pytest.raises(ArithmeticError):
            start("signalling", cwd=str(tmp_path))
    finally:
        signal.signal(signal.SIGUSR1, default)
    wait_until((tmp_path / "gone_on").exists)


@pytest.mark.parametrize(
    ("closed", "close"),
    [
        ("", ""),
        (">&-", ""),
        ("2>&-", ""),
        ("<&- >&- 2>&-", ""),
        ("", "os.closerange(0, 3); "),  # as a daemon
        ("", "sys.stdout.close(); "),
    ],
)
def test_a_detached_process_prints_to_its_log_whatever_its_caller_has_closed(
    closed: str, close: str, tmp_path: Path
) -> None:
    (tmp_path / "printing.py").write_text(
        "import faulthandler, os, sys\n"
        "from pathlib import Path\n"
        "from distrain.runners.system.processes import run_detached\n"
        "def work(ready):\n"
        "    faulthandler.enable()\n"
        "    print('out', file=sys.stdout, flush=True)\n"
        "    print('err', file=sys.stderr, flush=True)\n"
        "    os.system('echo child')\n"
        "    ready()\n"
        "sys.exit(run_detached(work, Path('log')))"
    )
    code = "import os, sys; from distrain.runners.system.processes import start; "
    code += f"{close}os._exit(start('printing'))"
    done = subprocess.run(
        ["sh", "-c", f'"$0" -c "$1" {closed}', sys.executable, code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0
    assert (tmp_path / "log").read_text() == "out\nerr\nchild\n"


def test_a_started_module_ends_with_its_own_exit_code_despite_pythoninspect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaving.py").write_text("import sys; sys.exit(0)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONINSPECT", "1")
    assert start("leaving") == 0


def test_a_process_can_raise_its_limit_of_file_descriptors() -> None:
    code = """
import resource
from distrain.runners.system.processes import descriptor_limit, raise_descriptor_limit
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
print(descriptor_limit())
raise_descriptor_limit()
print(descriptor_limit() == min(hard, 1 << 16))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["64", "True"]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("victim", path)])
def test_a_log_that_is_a_link_or_a_pipe_is_not_written_to(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path / "log")
    assert run_detached(pytest.fail, tmp_path / "log") == 1
    assert not (tmp_path / "victim").exists()


def test_the_log_of_a_detached_process_says_which_signal_has_ended_it(tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(
        "import os, sys; from pathlib import Path\n"
        "from distrain.runners.system.processes import run_detached\n"
        "sys.exit(run_detached(lambda ready: os.kill(os.getpid(), 9), Path('log')))"
    )
    assert start("killed", cwd=str(tmp_path), environment={"PYTHONPATH": str(tmp_path)}) == 1
    assert (tmp_path / "log").read_text() == "it was killed by SIGKILL\n"
