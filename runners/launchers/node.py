"""A node: what starts, watches and samples the ranks of one host in a run of several.

The supervisor tells it what to do (`Welcome`), and node 0 is where the ranks of all nodes meet.
Where a scheduler starts one task for each rank, every task is such a process with a single rank.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

import msgspec

from runners import launchers, rendezvous, words
from runners.config import RunConfig, parse_devices
from runners.connecting import TOKEN, TOKEN_FILE, Endpoint, secret
from runners.devices import Device, devices_for, usable
from runners.errors import ConfigError, DistrainError
from runners.events import Event, Failure, Meeting, Notice, Over, Stop, Welcome
from runners.launchers import ways
from runners.launchers.beside import samples, shipped
from runners.launchers.parent import Parent
from runners.launchers.place import Place
from runners.network import sockets
from runners.plan import Plan
from runners.processes import end_descendants
from runners.state import RunState, make_folder

ON_LOST = [(signal.SIGTERM, 10.0), (signal.SIGKILL, 3.0)]
LEAVE_S = 10.0  # after the ranks here have ended
ENDED = "ended by SIGTERM"
KINDS = {"cpu": "CPU rank", "cuda": "GPU"}
FIRST = "first"  # the argument of the node that the supervisor itself has started


class Node:
    """One such process: `work` returns when its ranks have ended.

    Needs DISTRAIN_SOCKET and the token, and DISTRAIN_RUN where the record's folder is reached
    from here too. The `first` one is a child of the supervisor, which samples its host itself.
    `devices` are chosen in place of those of the config. Where `meeting` is given, the ranks meet
    there.
    """

    def __init__(
        self, place: Place, *, first: bool = False, devices: str = "", meeting: str = ""
    ) -> None:
        self._place, self._first, self._devices = place, first, devices
        self._meeting = meeting
        self._answers: SimpleQueue[Welcome | None] = SimpleQueue()
        self._scheduled = self._working = self._gone = self._is_over = False
        self.exit_code = 1  # where the run ends before the ranks here do

    def work(self) -> int:
        """0 when all ranks here ended well; raises DistrainError where the run has no place, or
        has gone.
        """
        signal.signal(signal.SIGTERM, self._told_to_end)
        self._parent = parent = Parent(
            self._first,
            role="node" if self._place.rank is None else "task",
            node=self._place.node,
            rank=self._place.rank or 0,
            local_rank=self._place.local_rank,
            on_event=self._heard,
            on_lost=self._lost,
        )
        try:
            with parent:
                return self._work(parent)
        except Exception as error:
            if self._gone and self._working:
                raise DistrainError("the run's supervisor is gone; its ranks here ended") from error
            if type(error).__name__ == "SignalException":  # the elastic agent's
                raise DistrainError(ENDED) from error
            raise

    def _work(self, parent: Parent) -> int:
        if (welcome := self._answers.get()) is None:
            raise DistrainError("the run has ended, or has no place for this host")
        try:
            return self._train(parent, welcome)
        except DistrainError as error:
            if not self._gone and str(error) != ENDED:
                ranks = self._place.ranks(
                    msgspec.json.decode(welcome.plan, type=Plan).ranks_per_node
                )
                self._fails(parent, min(ranks.values()), error)
            raise

    def _fails(
        self, parent: Parent, rank: int, error: DistrainError, usage: bool | None = None
    ) -> None:
        """Say what keeps the ranks here from beginning, in the name of one of them."""
        parent.say(
            Failure(
                time=time.time(),
                rank=rank,
                error=type(error).__name__,
                message=str(error),
                usage=isinstance(error, ConfigError) if usage is None else usage,
            )
        )

    def _train(self, parent: Parent, welcome: Welcome) -> int:
        self._place = place = msgspec.structs.replace(self._place, node=welcome.node)
        config, plan = self._told(welcome)
        self._scheduled = plan.scheduled
        with ExitStack() as stack:
            folder = stack.enter_context(_folder(welcome.run_id, config, plan))
            if place.node > 0 or plan.scheduled:  # else the supervisor does
                stack.enter_context(samples(parent.say, place, plan, config.report.sample_s))
            if "DISTRAIN_RUN" not in os.environ:
                stack.enter_context(shipped(parent.say, folder / "logs"))
            os.environ |= _environment(config, plan, folder, place)
            if not (meeting := self._meeting or welcome.meeting) and place.leads:
                meeting = stack.enter_context(ways.meeting(config, plan, parent.address))
                parent.say(Meeting(place=meeting))
            self._note(parent, _talk_over(config, plan, meeting))
            self._working = True
            if self._gone:
                raise DistrainError("the run's supervisor is gone")
            code = ways.start(parent, place, config, plan, meeting)
            self._working = False
        parent.say(Over())
        return code

    def _heard(self, event: Event) -> None:
        match event:
            case Welcome():
                self._answers.put(event)
            case Stop(now=True):
                self._end_now()

    def _lost(self) -> None:
        """The supervisor is gone: what still runs here has nobody to train for."""
        self._answers.put(None)
        self._gone = True
        self._end_now()

    def _told_to_end(self, *_: object) -> None:
        """By a signal. Slurm sends it a while before it kills what is there: time enough for a
        checkpoint, if the supervisor thinks so.
        """
        if self._scheduled and self._working and not self._is_over:
            # Not in this thread: it may be about to say something itself.
            threading.Thread(target=self._parent.say, args=(Stop(),), daemon=True).start()
            return
        raise ways.ended(ENDED)

    def _end_now(self) -> None:
        self._is_over = True
        if self._working:
            os.kill(os.getpid(), signal.SIGTERM)
            # Not in this thread: whoever closes the connection waits for it.
            threading.Thread(target=self._end, daemon=True).start()

    def _end(self) -> None:
        end_descendants(ON_LOST)
        time.sleep(LEAVE_S)
        os._exit(self.exit_code)

    def _note(self, parent: Parent, text: str, level: Literal["info", "warning"] = "info") -> None:
        """What is worth knowing of this host, in the record."""
        if text and self._place.local_rank == 0:
            said = f"{socket.gethostname()}: {text}"
            parent.say(Notice(time=time.time(), text=said, level=level))

    def _told(self, welcome: Welcome) -> tuple[RunConfig, Plan]:
        """What is to be done, on this host's devices; raises ConfigError where they do not do."""
        config = RunConfig.from_toml(welcome.config)
        plan = msgspec.json.decode(welcome.plan, type=Plan)
        if "DISTRAIN_RUN" in os.environ:
            return config, plan
        if self._devices:
            config = config.with_changes({"devices": parse_devices(self._devices)})
        devices = devices_for(config)
        if problem := _too_few(devices, plan, self._place):
            raise ConfigError([("devices", problem)])
        if not plan.tasks:
            devices = devices[: plan.ranks_per_node]
        return config, msgspec.structs.replace(plan, devices=devices)


def _too_few(devices: list[Device], plan: Plan, place: Place) -> str:
    here, wanted = devices[0].kind, plan.devices[0].kind
    enough = len(devices) >= plan.ranks_per_node
    if plan.tasks:
        enough = usable(devices, place.local_rank)
    if here == wanted and enough:
        return ""
    has = words.things(len(devices), KINDS[here])
    if plan.tasks:
        return f"this host gives {has}, where LOCAL_RANK {place.local_rank} needs a {KINDS[wanted]}"
    needs = words.things(plan.ranks_per_node, KINDS[wanted])
    return f"this host gives {has}, the run needs {needs} of each host"


def _talk_over(config: RunConfig, plan: Plan, meeting: str) -> str:
    """Choose the interface that ranks here talk over; why it is that one."""
    leads = rendezvous.towards(meeting, os.environ["DISTRAIN_SOCKET"])
    chosen = sockets(config.dist.interface, leads if plan.spread else None)
    os.environ |= chosen.variables
    return chosen.why


@contextmanager
def _folder(run_id: str, config: RunConfig, plan: Plan) -> Iterator[Path]:
    """The record's folder, or a passing one in its place that has what ranks read of it."""
    if shared := os.environ.get("DISTRAIN_RUN"):
        yield Path(shared)
        return
    with tempfile.TemporaryDirectory(prefix="distrain-node-") as private:
        folder = Path(private) / run_id
        with make_folder(folder, config, RunState(run_id=run_id, created=time.time(), plan=plan)):
            (folder / TOKEN).touch(0o600)
            (folder / TOKEN).write_text(secret())
        yield folder


def _environment(config: RunConfig, plan: Plan, folder: Path, place: Place) -> dict[str, str]:
    endpoint = Endpoint("", os.environ["DISTRAIN_SOCKET"])
    ours = launchers.environment(config, plan, folder, endpoint)
    if "DISTRAIN_RUN" in os.environ:  # whoever started us knows where the token lies
        ours[TOKEN_FILE] = os.environ[TOKEN_FILE]
    return {**ours, "DISTRAIN_NODE": str(place.node)}


def main() -> int:
    """A node that the supervisor or Slurm has started."""
    first = sys.argv[1:] == [FIRST]
    place = Place(0) if first else Place.of_slurm()
    try:
        return Node(place, first=first).work()
    except DistrainError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        if error.filename:  # else it is the connection's
            raise
        where, here = os.environ["DISTRAIN_SOCKET"].removeprefix("tcp:"), socket.gethostname()
        why = error.strerror or error
        print(f"the run at {where} is out of reach from {here}: {why}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
