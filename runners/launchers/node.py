"""The node agent: starts, watches and samples the ranks of one host in a run on several.

The supervisor tells it what to do (`Welcome`); the ranks of all hosts meet at the agent of node 0.
Where a scheduler starts one task for each rank, every task is an agent with a single rank.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

import msgspec

from distrain.runners import formatting
from distrain.runners.config.device_choice import choose_devices
from distrain.runners.config.plan import Plan
from distrain.runners.config.planning import host_for
from distrain.runners.config.schema import RunConfig, parse_devices
from distrain.runners.errors import ConfigError, DistrainError
from distrain.runners.launchers import rank_start
from distrain.runners.launchers.command import (
    FIRST_NODE,
    PREVIOUS_RUN,
    SCRIPT_FOLDER,
    launcher_environment,
)
from distrain.runners.launchers.node_telemetry import forwarding_logs, sampling
from distrain.runners.launchers.supervisor_link import SIGTERM_REASON, SupervisorLink, termination
from distrain.runners.protocol.client import (
    TOKEN_FILE_NAME,
    TOKEN_FILE_VARIABLE,
    ServerAddresses,
    connect,
    read_own_token,
)
from distrain.runners.protocol.events import (
    Event,
    Failure,
    NodeFinished,
    Notice,
    OutsideRequest,
    Rendezvous,
    Signalled,
    Stop,
    Welcome,
)
from distrain.runners.records.folder import make_folder
from distrain.runners.records.state import RunState
from distrain.runners.system import scheduler_env
from distrain.runners.system.devices import Device, has_device_for
from distrain.runners.system.limits import explain
from distrain.runners.system.network import choose_interface
from distrain.runners.system.outside_stacks import read_ranks
from distrain.runners.system.processes import end_descendants
from distrain.runners.system.rank_identity import AgentIdentity
from distrain.runners.system.scratch import VARIABLE as SCRATCH_FOLDER
from distrain.runners.system.scratch import remove_scratch_folders, scratch_folder

END_RANKS = [(signal.SIGTERM, 10.0), (signal.SIGKILL, 3.0)]
LEAVE_S = 10.0  # after the ranks here have ended
DEVICE_NAMES = {"cpu": "CPU rank", "cuda": "GPU"}


class NodeAgent:
    """One agent process; `work` returns when its ranks have ended.

    It needs DISTRAIN_SOCKET and the token, and DISTRAIN_RUN where the record's folder can be
    reached from here, else DISTRAIN_RUNS_DIR. An agent that `is_child` of the supervisor does not
    sample its host, because the supervisor does. `devices` replaces those of the config,
    `meeting_place` the place that the supervisor announces.
    """

    def __init__(
        self,
        identity: AgentIdentity,
        *,
        is_child: bool = False,
        devices: str = "",
        meeting_place: str = "",
    ) -> None:
        self._identity = identity
        self._is_child = is_child
        self._devices = devices
        self._meeting_place = meeting_place
        self._answers: SimpleQueue[Welcome | None] = SimpleQueue()
        self._is_scheduled = False
        self._is_working = False
        self._is_supervisor_gone = False
        self._is_ending = False
        self.exit_code = 1  # where the run ends before the ranks here do

    def work(self) -> int:
        """Return 0 when all ranks here ended well.

        Raises DistrainError where the run does not accept this agent, or its supervisor is gone.
        """
        signal.signal(signal.SIGTERM, self._on_sigterm)
        self._link = link = SupervisorLink(
            self._is_child,
            role="node" if self._identity.rank is None else "task",
            node=self._identity.node,
            rank=self._identity.rank or 0,
            local_rank=self._identity.local_rank,
            on_event=self._on_event,
            on_lost=self._on_lost,
        )
        try:
            with link:
                return self._work(link)
        except Exception as error:
            if self._is_supervisor_gone and self._is_working:
                text = "the run's supervisor is gone; its ranks on this host were ended"
                raise DistrainError(text) from error
            if type(error).__name__ == "SignalException":  # the elastic agent's
                raise DistrainError(SIGTERM_REASON) from error
            raise

    def _work(self, link: SupervisorLink) -> int:
        if (welcome := self._answers.get()) is None:
            raise DistrainError("the run has ended, or does not accept this host")
        try:
            return self._train(link, welcome)
        except DistrainError as error:
            if not self._is_supervisor_gone and str(error) != SIGTERM_REASON:
                plan = msgspec.json.decode(welcome.plan, type=Plan)
                first_rank = min(self._identity.ranks(plan.ranks_per_node).values())
                self._report_failure(link, first_rank, error)
            raise

    def _report_failure(
        self, link: SupervisorLink, rank: int, error: DistrainError, usage: bool | None = None
    ) -> None:
        """Report why the ranks here cannot begin, as a failure of one of them."""
        link.send(
            Failure(
                time=time.time(),
                rank=rank,
                error=type(error).__name__,
                message=str(error),
                usage=isinstance(error, ConfigError) if usage is None else usage,
            )
        )

    def _train(self, link: SupervisorLink, welcome: Welcome) -> int:
        self._identity = identity = msgspec.structs.replace(self._identity, node=welcome.node)
        config, plan = self._read_welcome(welcome)
        self._is_scheduled = plan.scheduled
        with ExitStack() as stack:
            folder = stack.enter_context(_record_folder(welcome.run_id, config, plan))
            if identity.node > 0 or plan.scheduled:  # else the supervisor samples this host
                every_s = config.report.sample_s
                stack.enter_context(sampling(link.send, identity, plan, every_s))
            if "DISTRAIN_RUN" not in os.environ:
                stack.enter_context(forwarding_logs(link.send, folder / "logs"))
                os.environ |= _script_folders(welcome)
            os.environ |= _rank_environment(config, plan, folder, identity)
            place = self._meeting_place or welcome.rendezvous
            if not place and identity.is_leader:
                place = stack.enter_context(rank_start.meeting_place(config, plan, link.address))
                link.send(Rendezvous(address=place))
            elif welcome.rendezvous and not identity.is_leader:
                _check_reachable(welcome.rendezvous)
            self._send_notice(link, _choose_interface(config, plan, place))
            self._is_working = True
            if self._is_supervisor_gone:
                raise DistrainError("the run's supervisor is gone")
            code = rank_start.run_ranks(link, identity, config, plan, place)
            self._is_working = False
        link.send(NodeFinished())
        # Its end is that of the run. Elastic agents have waited for each other already.
        if self._is_child and (plan.tasks or (plan.backend == "horovod" and not code)):
            self._answers.get()  # until all ranks have ended
        return code

    def _on_event(self, event: Event) -> None:
        match event:
            case Welcome():
                self._answers.put(event)
            case NodeFinished() if self._is_child:
                self._answers.put(None)
            case OutsideRequest():
                # Not in this thread, which receives what ends the ranks.
                threading.Thread(target=self._read_ranks, args=(event,), daemon=True).start()
            case Stop(now=True):
                self._end_now()
            case Stop() if self._is_working:  # only to the agents of a script
                os.kill(os.getpid(), signal.SIGINT)

    def _read_ranks(self, request: OutsideRequest) -> None:
        for each in read_ranks(request.pids, request.number):
            self._link.send(each)

    def _on_lost(self) -> None:
        """End the ranks: the supervisor is gone, and nobody receives what they report."""
        self._answers.put(None)
        self._is_supervisor_gone = True
        self._end_now()

    def _on_sigterm(self, *_: object) -> None:
        """End, or let the supervisor decide whether there is time for a checkpoint.

        A scheduler sends SIGTERM some time before it kills everything on the node.
        """
        if self._is_scheduled and self._is_working and not self._is_ending:
            # Not in this thread: the signal may have interrupted it while it was sending.
            threading.Thread(target=self._link.send, args=(Stop(),), daemon=True).start()
            return
        if self._is_working and not self._is_ending:
            report = Signalled(time=time.time(), signal=signal.SIGTERM)
            threading.Thread(target=self._link.send, args=(report,), daemon=True).start()
        raise termination(SIGTERM_REASON)

    def _end_now(self) -> None:
        self._is_ending = True
        if self._is_working:
            os.kill(os.getpid(), signal.SIGTERM)
            # Not in this thread: whoever closes the connection waits for it.
            threading.Thread(target=self._end_ranks, daemon=True).start()

    def _end_ranks(self) -> None:
        end_descendants(END_RANKS)
        time.sleep(LEAVE_S)
        try:
            remove_scratch_folders()  # torch's agent may still wait for another host
        finally:
            os._exit(self.exit_code)

    def _send_notice(
        self, link: SupervisorLink, text: str, level: Literal["info", "warning"] = "info"
    ) -> None:
        """Add a sentence on this host to the record, once for all agents of the host."""
        if text and self._identity.local_rank == 0:
            text = f"{socket.gethostname()}: {text}"
            link.send(Notice(time=time.time(), text=text, level=level))

    def _read_welcome(self, welcome: Welcome) -> tuple[RunConfig, Plan]:
        """Return config and plan with the devices of this host.

        Raises ConfigError where the devices are not what the run needs.
        """
        config = RunConfig.from_toml(welcome.config)
        plan = msgspec.json.decode(welcome.plan, type=Plan)
        if "DISTRAIN_RUN" in os.environ:
            return config, plan
        if self._devices:
            config = config.with_changes({"devices": parse_devices(self._devices)})
        devices = choose_devices(config, host_for(config))
        if problem := _device_problem(devices, plan, self._identity):
            raise ConfigError([("devices", problem)])
        if not plan.tasks:
            devices = devices[: plan.ranks_per_node]
        return config, msgspec.structs.replace(plan, devices=devices)


def _device_problem(devices: list[Device], plan: Plan, identity: AgentIdentity) -> str:
    """Return why these devices do not suffice; empty where they do."""
    kind = devices[0].kind
    needed_kind = plan.devices[0].kind
    if plan.tasks:
        suffice = has_device_for(devices, identity.local_rank)
        need = f"LOCAL_RANK {identity.local_rank} needs a {DEVICE_NAMES[needed_kind]}"
    else:
        suffice = len(devices) >= plan.ranks_per_node
        count = formatting.plural(plan.ranks_per_node, DEVICE_NAMES[needed_kind])
        need = f"the run needs {count} on each host"
    if kind == needed_kind and suffice:
        return ""
    return f"this host has {formatting.plural(len(devices), DEVICE_NAMES[kind])}, but {need}"


def _check_reachable(place: str) -> None:
    """Raise DistrainError where nothing listens for this host at the place where the ranks meet."""
    try:
        connect(f"tcp:{place}").close()
    except OSError as error:
        text = f"cannot reach {place}, where the ranks meet: {error.strerror or error}"
        raise DistrainError(f"{text}; does a firewall allow only some ports?") from None


def _choose_interface(config: RunConfig, plan: Plan, place: str) -> str:
    """Choose the network interface of the ranks here; return the reason of the choice."""
    target = scheduler_env.interface_target(place, os.environ["DISTRAIN_SOCKET"])
    chosen = choose_interface(config.dist.interface, target if plan.spread else None)
    os.environ |= chosen.variables
    return chosen.why


@contextmanager
def _record_folder(run_id: str, config: RunConfig, plan: Plan) -> Iterator[Path]:
    """Yield the record's folder, or a temporary one with the files that ranks need.

    Where no supervisor on this host has made the ranks' folder for temporary files, this makes it.
    Raises DistrainError where that cannot be written.
    """
    shared = os.environ.get("DISTRAIN_RUN")
    if shared and not plan.scheduled:
        yield Path(shared)
        return
    with ExitStack() as stack:
        try:
            scratch = stack.enter_context(scratch_folder("node-"))
            folder = Path(shared) if shared else scratch / run_id
            if not shared:
                state = RunState(run_id=run_id, created=time.time(), plan=plan)
                with make_folder(folder, config, state):
                    (folder / TOKEN_FILE_NAME).touch(0o600)
                    (folder / TOKEN_FILE_NAME).write_text(read_own_token())
        except OSError as error:
            text = f"cannot write the ranks' files to a temporary folder: {explain(error)}"
            raise DistrainError(f"{text}; choose another folder with TMPDIR") from None
        os.environ[SCRATCH_FOLDER] = str(scratch)
        yield folder


def _script_folders(welcome: Welcome) -> dict[str, str]:
    """Return the variables by which a script finds its files, of this run and of the one before.

    They stay on this host, in its own folder of runs: the record's folder is on the first host.
    """
    runs_dir = Path(os.environ["DISTRAIN_RUNS_DIR"])
    variables = {SCRIPT_FOLDER: str(runs_dir / welcome.run_id)}
    if welcome.previous:
        variables[PREVIOUS_RUN] = str(runs_dir / welcome.previous)
    return variables


def _rank_environment(
    config: RunConfig, plan: Plan, folder: Path, identity: AgentIdentity
) -> dict[str, str]:
    addresses = ServerAddresses("", os.environ["DISTRAIN_SOCKET"])
    variables = launcher_environment(config, plan, folder, addresses)
    if "DISTRAIN_RUN" in os.environ:  # use the token file given in this process's environment
        variables[TOKEN_FILE_VARIABLE] = os.environ[TOKEN_FILE_VARIABLE]
    return {**variables, "DISTRAIN_NODE": str(identity.node)}


def main() -> int:
    """Run an agent that the supervisor or Slurm has started; return its exit code."""
    is_child = sys.argv[1:] == [FIRST_NODE]
    identity = AgentIdentity(0) if is_child else AgentIdentity.from_slurm()
    try:
        return NodeAgent(identity, is_child=is_child).work()
    except DistrainError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        if error.filename:  # else the connection failed
            raise
        address = os.environ["DISTRAIN_SOCKET"].removeprefix("tcp:")
        reason = error.strerror or error
        print(
            f"cannot reach the run at {address} from {socket.gethostname()}: {reason}",
            file=sys.stderr,
        )
        return 1


if __name__ == "__main__":
    sys.exit(main())
