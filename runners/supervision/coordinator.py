"""What ranks, node agents, launchers and viewers send to a supervisor, and what it answers."""

from __future__ import annotations

import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import structs

from distrain.runners import formatting
from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.launchers.batch_scheduler import BatchScheduler
from distrain.runners.protocol.events import (
    Attempt,
    Evaluation,
    Event,
    Exited,
    Facts,
    Failure,
    Finished,
    Hello,
    Job,
    NodeFinished,
    NonFinite,
    Notice,
    Phase,
    Printed,
    RankEvaluation,
    RankFacts,
    Rendezvous,
    Requeue,
    RunEnded,
    Sampled,
    Stop,
    StopAt,
    Stopping,
    StopSupport,
    Welcome,
    Window,
)
from distrain.runners.records.journal import JournalWriter
from distrain.runners.records.writer import Item, RecordWriter
from distrain.runners.supervision.attempts import Attempts
from distrain.runners.supervision.connection import Connection, skipped_message
from distrain.runners.supervision.disconnections import DisconnectionHandler
from distrain.runners.supervision.live_run import LiveRun, StateSetter
from distrain.runners.supervision.run_control import ObservedRunControl, RunControl
from distrain.runners.supervision.script_checks import NOT_STEPPED
from distrain.runners.system.devices import device_of_rank


class Coordinator(LiveRun):
    """Handles the events of all connections, in order of arrival.

    Events update the evidence and the stall watch, and go to the record.
    """

    def __init__(
        self,
        config: RunConfig,
        plan: Plan,
        writer: RecordWriter | JournalWriter,
        set_state: StateSetter,
        host: str,
        scheduler: BatchScheduler | None,
    ) -> None:
        super().__init__(config, plan, writer, set_state, host, scheduler)
        self.control = ObservedRunControl(self) if plan.observed else RunControl(self)
        self._stop_protocol = self.control.stop_protocol
        self._attempts = Attempts(self, self._stop_protocol)
        self._disconnections = DisconnectionHandler(self)
        self._has_skipped_entry = False  # of a journal
        self._have_twins: set[int] = set()  # ranks as which two processes have named themselves

    # --- events ----------------------------------------------------------------------------

    def received(self, connection: Connection, event: Event) -> None:
        """Handle an event of any connection; most of them are windows."""
        if connection.discarded:
            return
        if connection in self.ranks.programs:
            if isinstance(event, Failure):
                self.evidence.program_failure = event
            return
        if isinstance(event, Hello) and event.joined:
            self.grow(event.world_size)
        rank = getattr(event, "rank", None) or 0
        if not 0 <= rank < self.plan.world_size:
            connection.refuse(f"there is no rank {rank} in this run")
            return
        if connection.rank in self.ranks.joined:
            event = self._attempts.step_offsets.apply(event)
        match event:
            case Window():
                self._add_window(event)
            case Sampled():
                for sample in self.membership.number_samples(connection, event):
                    self.writer.add(sample)
            case Printed():
                self._append_to_log(event)
            case Hello():
                self._greet(connection, event)
            case Rendezvous():
                self.membership.set_meeting_place(connection, event.address)
            case NodeFinished():
                self.membership.mark_finished(connection)
            case Stop():
                self.control.handle(connection, event)
            case Stopping():
                self._stop_protocol.add_answer(event.rank, event.step)
            case RankEvaluation():
                if evaluation := self.script_evaluations.add(event):
                    self.writer.add(evaluation)
                self._explain_missing_evaluation()
            case RankFacts():
                for text in self.script_checks.add(event, connection.host):
                    self.notice(text)
            case StopSupport():
                self._stop_protocol.note_support(event.rank)
            case Attempt() | Welcome() | RunEnded() | StopAt() | Requeue():
                connection.refuse("only the supervisor may send this event")
            case Job() if self.scheduler is None:
                connection.refuse("this run is not a scheduler's job")
            case _:
                self._update_evidence(event)
                self.writer.add(event)

    def replay(self, item: Item | dict[str, Any]) -> None:
        """Apply an entry of the journal that the relay on the job's node has written.

        One that cannot be applied is skipped, with one notice; the others are more important.
        """
        self.is_replaying = True
        problem = ""
        try:
            self._apply(item)
        except Exception as error:
            with suppress(OSError):
                traceback.print_exc()
            problem = skipped_message("the journal", f"{type(error).__name__}: {error}")
        self.is_replaying = False
        if problem and not self._has_skipped_entry:
            self._has_skipped_entry = True
            self.notice(problem)

    def _apply(self, item: Item | dict[str, Any]) -> None:
        match item:
            case dict():
                self.set_state(**item)
            case Attempt():
                self._attempts.begin(self._attempts.number, item.step, item.reason)
            case Window():
                self._add_window(item)
            case Event():
                if isinstance(item, Hello):
                    self._note_greeting(item)
                self._update_evidence(item)
                self.writer.add(item)
            case _:
                self.writer.add(item)

    def _add_window(self, window: Window) -> None:
        self.evidence.steps[window.rank] = window.step
        self.stall_watch.record_step()
        self.writer.add(window)

    def _append_to_log(self, printed: Printed) -> None:
        if 0 <= printed.rank < self.plan.world_size:
            log: Path = self.writer.dir / "logs" / f"rank-{printed.rank}.log"
            # A full disk costs lines of the log, not the connection to the host.
            with suppress(OSError), log.open("a") as file:
                file.write(printed.text)

    def _greet(self, connection: Connection, hello: Hello) -> None:
        match hello.role:
            case "rank" | "node" | "task" if hello.attempt < self._attempts.latest:
                connection.refuse("the ranks have been restarted since")
            case "rank":
                self._greet_rank(connection, hello)
            case "node" | "task":
                if hello.attempt > self._attempts.nodes_number:
                    self._attempts.nodes_number = hello.attempt
                    self.membership.reset()
                self.membership.join(connection, hello)
            case "launcher":
                self.launcher = connection

    def _greet_rank(self, connection: Connection, hello: Hello) -> None:
        if hello.joined:
            if not self._admit_joined(connection, hello.rank):
                return
        elif self.may_restart and self._is_restarted(hello):
            self._attempts.begin(hello.attempt)
        elif hello.rank in self.ranks:
            connection.refuse(f"rank {hello.rank} is already connected")
            return
        hello = self._with_device(hello)
        self.ranks.add(connection, hello)
        self._note_greeting(hello)
        self.stall_watch.record_progress()
        self.writer.add(structs.replace(hello, token=""))
        self._stop_protocol.ask_if_begun(connection)

    def _note_greeting(self, hello: Hello) -> None:
        """Note that a rank begins; an earlier process of one that has joined may have ended."""
        if self.plan.spread:
            self.evidence.hosts[hello.rank] = hello.host
        if hello.joined:
            self.ranks.joined.add(hello.rank)
            self.evidence.reopen([hello.rank])
            self.conditions.all_finished.clear()

    def _is_restarted(self, hello: Hello) -> bool:
        return self.ranks.has_greeted(hello.rank) or hello.attempt > self._attempts.number

    def _admit_joined(self, connection: Connection, rank: int) -> bool:
        """Return whether a process that has named itself becomes this rank."""
        self.ranks.hand_over(rank)
        if self.ranks.is_alive(rank):
            self._refuse_twin(connection, rank)
            return False
        if earlier := self.ranks.by_rank.get(rank):  # its process is gone
            earlier.discard()
            self.disconnected(earlier)
        if rank in self.evidence.ended:
            if self.plan.observed:
                connection.refuse(f"rank {rank} has ended")
                return False
            self._attempts.readmit(rank)
        return True

    def _refuse_twin(self, connection: Connection, rank: int) -> None:
        text = f"another process is rank {rank} already: give each process a rank of its own"
        connection.send(Notice(time=time.time(), rank=rank, text=text))
        connection.discard()
        if rank not in self._have_twins:
            self._have_twins.add(rank)
            self.notice(f"a process is not recorded: {text}")

    def _with_device(self, hello: Hello) -> Hello:
        """Return the hello with the devices of its rank, which a script does not report."""
        devices = self.plan.devices
        is_unknown = self.plan.observed and devices[0].kind == "cuda"
        if hello.device or self.plan.spread or is_unknown:
            return hello
        if self.plan.world_size > 1:
            devices = [device_of_rank(devices, hello.local_rank)]
        label = " ".join(device.label for device in devices)
        return structs.replace(hello, device=label, device_uuid=devices[0].uuid)

    def _update_evidence(self, event: Event) -> None:
        """Update the evidence and the stall watch."""
        match event:
            case Phase():
                self.stall_watch.phases[event.rank] = event.phase
                self.stall_watch.record_progress()
            case Evaluation():
                self.stall_watch.record_progress()
            case Facts():
                self._save_facts(event)
            case Failure():
                self.evidence.failures[event.rank] = (time.monotonic(), event)
                self.control.release(event.rank)
                self._note_trouble()
            case Finished():
                self._note_finished(event)
            case Exited():
                self.evidence.exits[event.rank] = event
                if event.code:
                    self._note_trouble()
            case NonFinite():
                self._note_nonfinite(event)
            case Job():
                self._note_job(event)

    def _note_trouble(self) -> None:
        """Let the run end, unless the launcher does that: a script may need time to end well."""
        if not self.ends_by_itself:
            self.conditions.trouble.set()

    def _save_facts(self, facts: Facts) -> None:
        """Save the facts of the first attempt, which contain the step at which the run began."""
        if self.writer.state.facts is None:
            self.set_state(facts=facts)
            for text in facts.notices:
                self.notice(text)

    def _note_finished(self, event: Finished) -> None:
        self.evidence.finished[event.rank] = event
        self.control.release(event.rank)
        if len(self.evidence.finished) < self.plan.world_size:
            return
        self.conditions.all_finished.set()
        self._explain_missing_evaluation()
        if self.script_checks.ended_without_step:
            self.notice(NOT_STEPPED, "info")
        # Ranks that stopped without our request were asked to by the scheduler.
        if self.evidence.any_stopped and not self.evidence.stop_requested:
            self.control.note_preemption()

    def _explain_missing_evaluation(self) -> None:
        if text := self.script_evaluations.explain_missing():
            self.notice(text)

    def _note_nonfinite(self, event: NonFinite) -> None:
        text = f"the loss of rank {event.rank} became {event.loss} at step {event.step}"
        first = self.evidence.nonfinite
        if self.config.train.on_nan == "continue":
            self.notice(f"{text}; training continues")
        elif first is None or event.step < first.step:
            # It spreads to the other ranks through the gradients, and they may report it earlier.
            self.evidence.nonfinite = event
            self.notice(text)
            self.control.stop(save=False)

    def _note_job(self, job: Job) -> None:
        self.evidence.job = job
        if not self.is_job_queued or self.ranks:
            if self.writer.state.status == "queued":
                self.set_state(job=job, status="running")
            else:
                self.set_state(job=job)
        elif self.is_stopping:
            self.control.stop()
        else:
            self.set_state(job=job, status="queued")

    def disconnected(self, connection: Connection) -> None:
        """Handle the end of a connection that had greeted."""
        self._disconnections.handle(connection)
        self._stop_protocol.decide()

    def report_stall(self) -> None:
        """Add a notice once training makes no progress."""
        if text := self.stall_watch.describe_stall():
            self.notice(text)

    def explain_missing_ends(self) -> None:
        """Add a notice if ranks were gone before they had reported everything."""
        lost = self.evidence.disconnected
        steps = {rank: self.evidence.steps[rank] for rank in lost if rank in self.evidence.steps}
        if steps:
            text = "ended without the exit handlers of Python, as after os._exit(): what followed"
            self.notice(f"{text} the last report is not recorded ({formatting.rank_steps(steps)})")
