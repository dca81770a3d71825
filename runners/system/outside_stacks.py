"""Stacks of a Python process that does not answer, read from outside."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from distrain.runners.protocol.events import Frame, Stacks, ThreadStack
from distrain.runners.protocol.stacks import DUMP_FILE, DUMP_SIGNAL, MOST_FRAMES, MOST_THREADS
from distrain.runners.system.processes import is_suspended

AT_ONCE = 16  # processes that are read
DUMP_S = 0.5  # for the handler to begin
PAUSE_S = 0.05  # in which a handler that has begun writes more
PY_SPY_S = 10.0
MOST_BYTES = 1 << 18
_THREAD = re.compile(r"(Current thread|Thread) 0x(\w+)")
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')


def read_ranks(pids: Mapping[int, int], number: int = 0) -> list[Stacks]:
    """Return what ranks on this host are doing, as far as it can be told without their help.

    `pids` maps ranks to processes, `number` is that of the request.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = [
            Stacks(
                time=time.time(),
                rank=rank,
                number=number,
                threads=threads,
                is_from_outside=True,
                is_suspended=is_suspended(pids[rank]),
            )
            for rank, threads in zip(pids, pool.map(read_outside, pids.values()), strict=True)
        ]
    return [each for each in found if each.threads or each.is_suspended]


def read_outside(pid: int) -> list[ThreadStack]:
    """Return what the threads of a process of this host are doing; empty where nobody can tell.

    A process that the signal handler of `make_stacks_readable` serves writes its stacks. A
    suspended one handles no signals: py-spy reads it, where that is installed.
    """
    threads = [] if is_suspended(pid) else _dump(pid)
    return (threads or _read_with_py_spy(pid))[:MOST_THREADS]


def _dump(pid: int) -> list[ThreadStack]:
    file = _dump_file(pid)
    # Without a handler the signal would end the process.
    if file is None or not _is_handled(pid):
        return []
    with suppress(OSError):
        os.truncate(file, 0)
        size = 0
        os.kill(pid, DUMP_SIGNAL)
        deadline = time.monotonic() + DUMP_S
        while time.monotonic() < deadline:
            time.sleep(PAUSE_S)
            before, size = size, file.stat().st_size
            if before == size > 0:
                break
        with file.open("rb") as opened:
            return parse_dump(opened.read(MOST_BYTES).decode(errors="backslashreplace"))
    return []


def _dump_file(pid: int) -> Path | None:
    """Return the file that the handler of a process writes to; None if the program closed it."""
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if os.readlink(path).startswith(f"/memfd:{DUMP_FILE}"):
                    return path
    return None


def _is_handled(pid: int) -> bool:
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (DUMP_SIGNAL - 1) & 1)
    return False


def parse_dump(text: str) -> list[ThreadStack]:
    """Return the stacks that faulthandler has written, the main thread first.

    The handler runs in the main thread, which is therefore the current one.
    """
    threads: list[ThreadStack] = []
    for line in text.splitlines():
        if found := _THREAD.match(line):
            is_main = found[1] == "Current thread"
            thread = ThreadStack(name="MainThread" if is_main else f"thread {found[2]}", frames=[])
            threads.insert(0 if is_main else len(threads), thread)
            frames = thread.frames
        elif threads and (found := _FRAME.match(line)):
            frames.insert(0, Frame(found[1], int(found[2]), found[3]))
    return threads


def _read_with_py_spy(pid: int) -> list[ThreadStack]:
    folders = (os.environ.get("PATH", ""), os.path.dirname(sys.executable))
    program = shutil.which("py-spy", path=os.pathsep.join(folders))
    if program is None:
        return []
    command = [program, "dump", "--json", "--nonblocking", "--pid", str(pid)]
    with suppress(OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        done = subprocess.run(command, capture_output=True, timeout=PY_SPY_S, check=True)
        return parse_py_spy(json.loads(done.stdout))
    return []


def parse_py_spy(threads: Iterable[dict[str, Any]]) -> list[ThreadStack]:
    """Return the stacks that `py-spy dump --json` has printed, the main thread first."""
    found = [
        ThreadStack(
            name=str(thread["thread_name"] or f"thread {thread['thread_id']}"),
            frames=[
                Frame(str(frame["filename"]), int(frame["line"]), str(frame["name"]))
                for frame in thread["frames"][:MOST_FRAMES][::-1]
            ],
        )
        for thread in threads
    ]
    return sorted(found, key=lambda each: each.name != "MainThread")
