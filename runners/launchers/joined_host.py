"""The node agent of a host that joins a run: it prints its state for `distrain join`.

Each line on its standard output is a state and a text, separated by a tab.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import traceback
from contextlib import suppress
from queue import Empty

from distrain.runners import formatting
from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import DistrainError
from distrain.runners.launchers.node import NodeAgent
from distrain.runners.launchers.supervisor_link import SupervisorLink
from distrain.runners.protocol.events import Event, NodeFinished, Notice, RunEnded, Welcome
from distrain.runners.system.devices import device_of_rank
from distrain.runners.system.provenance import versions
from distrain.runners.system.rank_identity import AgentIdentity

EXIT_CODES = {"completed": 0, "failed": 1, "stopped": 130}
ANSWER_S = 60.0  # for the first host to answer at all, once it has accepted the connection
OUTCOME_S = 60.0  # for the first host to report how the run ended, once the ranks here have ended
SILENT = (
    "the first host accepts the connection and does not answer: the run's supervisor is suspended, "
    "or something else listens there"
)
NOT_ACCEPTED = (
    "the connection was closed: the token is not that of this run, or something else listens there"
)
FIRST_HOST_LOST = "the first host has ended or does not answer; the ranks here were ended"
COMPARED_VERSIONS = ("distrain", "python", "torch", "horovod")


def print_state(state: str, text: str) -> None:
    print(state, formatting.single_line(text), sep="\t", flush=True)


class JoinedHost(NodeAgent):
    """An agent that prints its state, and whose exit code is that of the run."""

    def __init__(self, identity: AgentIdentity, devices: str = "", meeting_place: str = "") -> None:
        super().__init__(identity, devices=devices, meeting_place=meeting_place)
        self._has_run_ended = False
        self._is_answered = threading.Event()
        self._reason_if_lost = NOT_ACCEPTED

    def work(self) -> int:
        try:
            super().work()
        except Exception:
            if not self._has_run_ended:
                raise
        return self.exit_code

    def _work(self, link: SupervisorLink) -> int:
        if not self._is_answered.wait(ANSWER_S):
            raise DistrainError(SILENT)
        if (welcome := self._answers.get()) is None:
            raise DistrainError(self._reason_if_lost)
        if text := version_differences(versions(), welcome.versions):
            print_state("warning", text)
            self._send_notice(link, text, "warning")
        try:
            code = self._train(link, welcome)
        except DistrainError as error:
            if not self._is_working:
                self._refuse(link, error)
            raise
        except Exception as error:  # the elastic agent's, as when the store is gone with its host
            with suppress(Empty):
                self._answers.get(timeout=OUTCOME_S)
            if self._has_run_ended:
                raise
            traceback.print_exc()
            text = f"the ranks here have ended: {formatting.single_line(str(error))}"
            self._send_notice(link, text, "warning")
            raise DistrainError(text) from None
        self._answers.get()  # until the run has ended everywhere
        return code

    def _refuse(self, link: SupervisorLink, error: DistrainError) -> None:
        """Report why this host cannot take part; another one may take its place."""
        self._send_notice(link, f"cannot take part: {error}", "warning")
        link.send(NodeFinished())

    def _on_event(self, event: Event) -> None:
        self._is_answered.set()
        match event:
            case Notice(level="info"):
                self._reason_if_lost = FIRST_HOST_LOST
                print_state("waiting", event.text)
            case Notice():
                self._reason_if_lost = event.text
            case Welcome():
                self._reason_if_lost = FIRST_HOST_LOST
            case RunEnded():
                self._note_end(event.status, event.reason)
        super()._on_event(event)

    def _on_lost(self) -> None:
        self._is_answered.set()
        if not self._has_run_ended:
            self._note_end("failed", self._reason_if_lost)
        super()._on_lost()

    def _note_end(self, status: str, reason: str) -> None:
        """Print how the run ended at once: the ranks here may need a while to end."""
        self._has_run_ended = True
        self.exit_code = EXIT_CODES[status]
        print_state(status, reason)

    def _read_welcome(self, welcome: Welcome) -> tuple[RunConfig, Plan]:
        config, plan = super()._read_welcome(welcome)
        ranks = self._identity.ranks(plan.ranks_per_node)
        labels = " ".join(device_of_rank(plan.devices, local).label for local in ranks)
        numbers = formatting.ranks(list(ranks.values()))
        print_state("training", f"{numbers} of {plan.world_size} on {labels}")
        return config, plan


def version_differences(here: dict[str, str], first_host: dict[str, str]) -> str:
    """Return how versions differ from those of the first host; empty where they do not."""
    differences = [
        f"{name} is {here.get(name, 'missing')} here and {first_host.get(name, 'missing')} there"
        for name in COMPARED_VERSIONS
        if here.get(name) != first_host.get(name)
    ]
    return f"versions differ from the first host: {', '.join(differences)}" if differences else ""


def main() -> int:
    """Join as node NUMBER (-1: any that is free) with DEVICES (empty: those of the config)."""
    number = int(sys.argv[1])
    devices = sys.argv[2]
    return join_run(JoinedHost(AgentIdentity(number), devices))


def join_run(host: JoinedHost) -> int:
    """Connect and train; print why that failed where the run does not report it itself."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # what its encoding lacks must not end a thread
        sys.stdout.reconfigure(errors="replace")
    address = os.environ["DISTRAIN_SOCKET"].removeprefix("tcp:")
    print_state("connecting", address)
    try:
        return host.work()
    except ConnectionRefusedError:
        text = f"no supervisor listens at {address}: the run has ended, or has not started"
        print_state("failed", text)
    except OSError as error:
        print_state("failed", f"cannot reach {address}: {error.strerror or error}")
    except DistrainError as error:
        print_state("failed", str(error))
        return error.exit_code
    return 1


if __name__ == "__main__":
    sys.exit(main())
