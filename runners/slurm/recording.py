"""Within a job: its first node hears the ranks itself where the run's own host is out of reach.

`python -m runners.slurm.recording srun …` becomes that srun where the supervisor can be reached.
Otherwise it takes the supervisor's place as far as the ranks are concerned: it listens on this
node, answers them, and keeps a journal in the record's folder, which the supervisor reads.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from runners.connecting import TOKEN, TOKEN_FILE, ask, secret
from runners.conversation import Conversation
from runners.endpoint import listening
from runners.errors import DistrainError
from runners.events import Notice, Stop, decode, encode
from runners.journal import Journal
from runners.record import Record
from runners.slurm.nodes import address_of
from runners.state import write_atomically
from runners.writer import disk_may_be_full

PLACE = "job"  # a folder in the record, for this process's token and what it is asked
ASKED = "stop.json"
LOOK_S = 0.5
REACH_S = 10.0
LAST_S = 60.0


def ask_job(folder: Path, stop: Stop) -> None:
    """Have the ranks of a job that cannot be reached stop; raises OSError."""
    write_atomically(folder / PLACE / ASKED, encode(stop))


def main() -> int:
    command, record = sys.argv[1:], Record(Path(os.environ["DISTRAIN_RUN"]))
    asked = record.config.slurm.report == "files"
    why = "slurm.report asks for it" if asked else unreachable(os.environ["DISTRAIN_SOCKET"])
    if not why:
        os.execvp(command[0], command)
    try:
        return asyncio.run(recorded(record, command, why))
    except DistrainError as error:
        print(error, file=sys.stderr)
        return 1


def unreachable(address: str) -> str:
    """Why the supervisor does not hear what is said here; empty where it does."""
    if not address:
        return "no address leads to the login node"
    try:
        ask(address, token=secret(), seconds=REACH_S)
    except OSError as error:
        return f"{address} is out of reach: {error.strerror or error}"
    return ""


async def recorded(record: Record, command: list[str], why: str) -> int:
    """Run srun to its end, and keep what its ranks say; its exit code."""
    host, place = socket.gethostname(), record.dir / PLACE
    place.mkdir(mode=0o700, exist_ok=True)
    (place / ASKED).unlink(missing_ok=True)
    plan, journal = record.state.plan, Journal(record.dir)
    assert plan is not None
    talk = Conversation(record.config, plan, journal, journal.set_state, host)
    text = f"{host} records the run beside the job, in its folder: {why}"
    journal.add(Notice(time=time.time(), level="info", text=text))
    async with listening(talk, place, address_of(os.environ["SLURMD_NODENAME"])) as endpoint:
        ours = {"DISTRAIN_SOCKET": endpoint.remote, TOKEN_FILE: str(place / TOKEN)}
        srun = await asyncio.create_subprocess_exec(*command, env={**os.environ, **ours})
        loop, done = asyncio.get_running_loop(), asyncio.create_task(srun.wait())
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, srun.send_signal, number)
        while not done.done():
            await asyncio.wait([done], timeout=LOOK_S)
            _obey(place / ASKED, talk)
            if talk.seen.silent or talk.end_now.is_set():
                with suppress(ProcessLookupError):
                    srun.terminate()
            with disk_may_be_full():
                journal.commit()
    await kept(journal)
    return done.result()


async def kept(journal: Journal) -> None:
    """Write the rest; a disk that is full has so long to have room again."""
    deadline = time.monotonic() + LAST_S
    while journal.waiting and time.monotonic() < deadline:
        with disk_may_be_full():
            journal.commit()
        await asyncio.sleep(LOOK_S if journal.waiting else 0)
    with disk_may_be_full():
        journal.close()


def _obey(asked: Path, talk: Conversation) -> None:
    with suppress(FileNotFoundError, msgspec.MsgspecError):
        stop = decode(asked.read_bytes())
        asked.unlink()
        if isinstance(stop, Stop):
            talk.stop(now=stop.now, again=stop.again)


if __name__ == "__main__":
    sys.exit(main())
