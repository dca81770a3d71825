"""What ranks, node agents, launchers and viewers send to a supervisor, and what it answers."""

from __future__ import annotations

import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import structs

from distrain.runners import formatting
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
    Sampled,
    Saved,
    Signalled,
    StackRequest,
    Stacks,
    Stop,
    Stopping,
    StopSupport,
    Window,
)
from distrain.runners.records.job_status import WAITING
from distrain.runners.records.writer import Item
from distrain.runners.supervision.attempts import Attempts
from distrain.runners.supervision.connection import Connection, skipped_message
from distrain.runners.supervision.disconnections import DisconnectionHandler
from distrain.runners.supervision.live_run import LiveRun
from distrain.runners.supervision.run_control import ObservedRunControl, RunControl
from distrain.runners.supervision.script_checks import NOT_STEPPED
from distrain.runners.supervision.stall_probe import StallProbe
from distrain.runners.system.devices import device_of_rank

OUT_OF_TIME = "at the limit of train.max_time_s"


class Coordinator:
    """Handles the events of all connections of a run, in order of arrival.

    Events update the evidence and the stall watch, and go to the record.
    """

    def __init__(self, run: LiveRun) -> None:
        self.run = run
        self.control = ObservedRunControl(run) if run.plan.observed else RunControl(run)
        self._stop_protocol = self.control.stop_protocol
        self._attempts = Attempts(run, self._stop_protocol)
        self._disconnections = DisconnectionHandler(run)
        self.stall_probe = StallProbe(run)
        self._has_skipped_entry = False  # of a journal
        self._have_twins: set[int] = set()  # ranks as which two processes have named themselves

    # --- events ----------------------------------------------------------------------------

    def received(self, connection: Connection, event: Event) -> None:
        """Handle an event of any connection; most of them are windows."""
        if connection.discarded:
            return
        if isinstance(event, Window) and self.run.ranks.is_plain(connection):
            self._add_window(event)
        elif connection in self.run.ranks.programs:
            if isinstance(event, Failure):
                self.run.evidence.program_failure = event
                self.run.evidence.program_failed = time.monotonic()
        elif reason := self._refusal(connection, event):
            connection.refuse(reason)
        else:
            if connection.rank in self.run.ranks.joined:
                event = self._attempts.step_offsets.apply(event)
            self._handle(connection, event)

    def _refusal(self, connection: Connection, event: Event) -> str:
        """Return why an event does not belong to this run, which a rank that joins may extend."""
        if isinstance(event, Hello) and event.role == "rank" and event.joined:
            self.run.grow(event.world_size)
        rank = getattr(event, "rank", None) or 0
        if not 0 <= rank < self.run.plan.world_size:
            return f"there is no rank {rank} in this run"
        return self.run.membership.refusal(connection, event)

    def _handle(self, connection: Connection, event: Event) -> None:
        match event:
            case Window():
                self._add_window(event)
            case Sampled():
                for sample in self.run.membership.number_samples(connection, event):
                    self.run.writer.add(sample)
            case Printed():
                self._append_to_log(event)
            case Hello():
                self._greet(connection, event)
            case Rendezvous():
                self.run.membership.set_meeting_place(connection, event.address)
            case NodeFinished():
                self.run.membership.mark_finished(connection)
            case Signalled() if host := self.run.membership.distant_host(connection):
                self._disconnections.note_agent_signal(host, event.signal)
            case Stop():
                self.control.handle(connection, event)
            case Stopping():
                self._stop_protocol.add_answer(event.rank, event.step)
            case RankEvaluation():
                if evaluation := self.run.script_evaluations.add(event):
                    self.run.writer.add(evaluation)
                self._explain_missing_evaluation()
            case RankFacts():
                for text in self.run.script_checks.add(event, connection.host):
                    self.run.notice(text)
            case Stacks():
                self.stall_probe.collector.add(event)
            case StackRequest():
                self.stall_probe.answer(connection)
            case StopSupport():
                self._stop_protocol.note_support(event.rank)
            case Job() if self.run.scheduler is None:
                connection.refuse("this run is not a scheduler's job")
            case _:
                self._update_evidence(event)
                self.run.writer.add(event)

    def replay(self, item: Item | dict[str, Any]) -> None:
        """Apply an entry of the journal that the relay on the job's node has written.

        One that cannot be applied is skipped, with one notice; the others are more important.
        """
        self.run.is_replaying = True
        problem = ""
        try:
            self._apply(item)
        except Exception as error:
            with suppress(OSError):
                traceback.print_exc()
            problem = skipped_message("the journal", f"{type(error).__name__}: {error}")
        self.run.is_replaying = False
        if problem and not self._has_skipped_entry:
            self._has_skipped_entry = True
            self.run.notice(problem)

    def _apply(self, item: Item | dict[str, Any]) -> None:
        match item:
            case dict():
                self.run.set_state(**item)
                if stall := item.get("stall"):
                    self.run.evidence.note_stall(stall)
            case Attempt():
                self._attempts.begin(self._attempts.number, item.step, item.reason)
            case Window():
                self._add_window(item)
            case Event():
                if isinstance(item, Hello):
                    self._note_greeting(item)
                self._update_evidence(item)
                self.run.writer.add(item)
            case _:
                self.run.writer.add(item)

    def _add_window(self, window: Window) -> None:
        self.run.evidence.steps[window.rank] = window.step
        self.run.stall_watch.record_step(window.rank, window.seconds / max(window.steps, 1))
        self.run.writer.add(window)

    def _append_to_log(self, printed: Printed) -> None:
        if 0 <= printed.rank < self.run.plan.world_size:
            log: Path = self.run.writer.dir / "logs" / f"rank-{printed.rank}.log"
            # A full disk costs lines of the log, not the connection to the host.
            with suppress(OSError), log.open("a", encoding="utf-8") as file:
                file.write(printed.text)

    def _greet(self, connection: Connection, hello: Hello) -> None:
        if self.run.scheduler is None:  # the count is that of a job around the run, as a whole
            hello = structs.replace(hello, attempt=0)
        match hello.role:
            case "rank" | "node" | "task" if hello.attempt < self._attempts.latest:
                connection.refuse("the ranks have been restarted since")
            case "node" | "task" if not (self.run.plan.spread or self.run.plan.scheduled):
                connection.refuse("other hosts cannot join this run: it has one host")
            case "launcher" if self.run.plan.observed:
                connection.refuse("this run has no launcher: distrain has not started it")
            case "launcher" if self.run.launcher and not self.run.config.has_rank_wrappers:
                connection.refuse("this run's launcher is already connected")
            case "rank" if hello.joined and not self.run.config.is_script:
                connection.refuse("distrain starts the ranks of this run: no process can join it")
            case "rank":
                self._greet_rank(connection, hello)
            case "node" | "task":
                if hello.attempt > self._attempts.nodes_number:
                    self._attempts.nodes_number = hello.attempt
                    self.run.membership.reset()
                self.run.membership.join(connection, hello)
            case "launcher":
                self.run.launcher = self.run.launcher or connection

    def _greet_rank(self, connection: Connection, hello: Hello) -> None:
        if hello.joined:
            if not self._admit_joined(connection, hello.rank):
                return
        elif self.run.may_restart and self._attempts.is_another(hello):
            newest = self.run.ranks.take_newest()
            self._attempts.begin(hello.attempt)
            for each, earlier in newest.items():
                self._welcome(each, earlier)
        elif hello.rank in self.run.ranks:
            connection.refuse(f"rank {hello.rank} is already connected")
            return
        self._welcome(connection, self._with_device(hello))

    def _welcome(self, connection: Connection, hello: Hello) -> None:
        self.run.ranks.add(connection, hello)
        self._attempts.note(hello)
        self._note_greeting(hello)
        self.run.stall_watch.record_progress(hello.rank)
        self.run.writer.add(structs.replace(hello, token=""))
        self._stop_protocol.ask_if_begun(connection)

    def _note_greeting(self, hello: Hello) -> None:
        """Note that a rank begins; an earlier process of one that has joined may have ended."""
        if self.run.plan.spread:
            self.run.evidence.hosts[hello.rank] = hello.host
        if hello.joined:
            self.run.ranks.joined[hello.rank] = hello.pid
            self.run.evidence.ranks_joined = True
            self.run.evidence.reopen([hello.rank])
            self.run.conditions.all_finished.clear()

    def _admit_joined(self, connection: Connection, rank: int) -> bool:
        """Return whether a process that has named itself becomes this rank."""
        self.run.ranks.hand_over(rank)
        if self.run.ranks.is_alive(rank):
            self._refuse_twin(connection, rank)
            return False
        if earlier := self.run.ranks.by_rank.get(rank):  # its process is gone
            earlier.discard()
            self.disconnected(earlier)
        if rank in self.run.evidence.ended:
            if self.run.plan.observed:
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
            self.run.notice(f"a process is not recorded: {text}")

    def _with_device(self, hello: Hello) -> Hello:
        """Return the hello with the devices of its rank, which a script does not report."""
        devices = self.run.plan.devices
        is_unknown = self.run.plan.observed and devices[0].kind == "cuda"
        if hello.device or self.run.plan.spread or is_unknown:
            return hello
        if self.run.plan.world_size > 1:
            devices = [device_of_rank(devices, hello.local_rank)]
        label = " ".join(device.label for device in devices)
        return structs.replace(hello, device=label, device_uuid=devices[0].uuid)

    def _update_evidence(self, event: Event) -> None:
        """Update the evidence and the stall watch."""
        match event:
            case Phase():
                self.run.stall_watch.record_phase(event.rank, event.phase)
            case Evaluation() | Saved():
                for rank in self.run.ranks.by_rank:  # all have taken part
                    self.run.stall_watch.record_progress(rank)
            case Facts():
                self._save_facts(event)
            case Failure():
                self.run.evidence.failures[event.rank] = (time.monotonic(), event)
                self.run.stall_watch.record_progress(event.rank)
                self.control.release(event.rank)
                self._note_trouble()
            case Finished():
                self._note_finished(event)
            case Signalled():
                self._note_signalled(event)
            case Exited():
                self.run.evidence.exits[event.rank] = event
                if event.code:
                    self._note_trouble()
            case NonFinite():
                self._note_nonfinite(event)
            case Job():
                self._note_job(event)

    def _note_trouble(self) -> None:
        """Let the run end, unless the launcher does that: a script may need time to end well."""
        if not self.run.ends_by_itself:
            self.run.conditions.trouble.set()

    def _save_facts(self, facts: Facts) -> None:
        """Save the facts of the first attempt, which contain the step at which the run began."""
        if self.run.writer.state.facts is None:
            self.run.set_state(facts=facts)
            for text in facts.notices:
                self.run.notice(text)

    def stop_in_time(self) -> None:
        """Stop the run once `train.max_time_s` is over, counted from the facts of the training."""
        evidence = self.run.evidence
        is_ending = evidence.stop_requested or self.run.conditions.all_finished.is_set()
        if self.run.is_out_of_time and not is_ending:
            evidence.stop_origin = OUT_OF_TIME
            self.control.stop()

    def _note_finished(self, event: Finished) -> None:
        self.run.evidence.finished[event.rank] = event
        self.run.stall_watch.record_progress(event.rank)
        self.control.release(event.rank)
        if len(self.run.evidence.finished) < self.run.plan.world_size:
            return
        self.run.conditions.all_finished.set()
        self._explain_missing_evaluation()
        if self.run.script_checks.ended_without_step:
            self.run.notice(NOT_STEPPED, "info")
        # Ranks that stopped without our request were asked to by the scheduler.
        if self.run.evidence.any_stopped and not self.run.evidence.stop_requested:
            if self.run.is_out_of_time:  # a relay has stopped them
                self.run.evidence.stop_origin = OUT_OF_TIME
            else:
                self.control.note_preemption()

    def _note_signalled(self, event: Signalled) -> None:
        if not self.run.evidence.launcher_ended:
            self.run.evidence.launcher_signal = event.signal
            self.run.evidence.launcher_signalled = time.monotonic()
            self._note_trouble()

    def _explain_missing_evaluation(self) -> None:
        if text := self.run.script_evaluations.explain_missing():
            self.run.notice(text)

    def _note_nonfinite(self, event: NonFinite) -> None:
        text = f"the loss of rank {event.rank} became {event.loss} at step {event.step}"
        first = self.run.evidence.nonfinite
        if self.run.config.train.on_nan == "continue":
            self.run.notice(f"{text}; training continues")
        elif first is None or event.step < first.step:
            # It spreads to the other ranks through the gradients, and they may report it earlier.
            self.run.evidence.nonfinite = event
            self.run.notice(text)
            self.control.stop(save=False)

    def _note_job(self, job: Job) -> None:
        self.run.evidence.job = job
        if job.state in WAITING and not (self.run.ranks or self.run.is_stopping):
            # A stop of its ranks has ended with them: those that come next train on.
            self._stop_protocol.reset(keep_timeout=False)
            self.run.evidence.stop_requested = False
        if not self.run.is_job_queued or self.run.ranks:
            if self.run.writer.state.status == "queued":
                self.run.set_state(job=job, status="running")
            else:
                self.run.set_state(job=job)
        elif self.run.is_stopping:
            self.control.stop()
        else:
            self.run.set_state(job=job, status="queued")

    def disconnected(self, connection: Connection) -> None:
        """Handle the end of a connection that had greeted."""
        self._disconnections.handle(connection)
        self._stop_protocol.decide()

    def explain_missing_ends(self) -> None:
        """Add a notice if ranks were gone before they had reported everything."""
        evidence = self.run.evidence
        lost = evidence.disconnected.keys() - evidence.outlived
        if steps := {rank: evidence.steps[rank] for rank in sorted(lost) if rank in evidence.steps}:
            text = "ended without the exit handlers of Python, as after os._exit(): what followed"
            where = formatting.rank_steps(steps)
            self.run.notice(f"{text} the last report is not recorded ({where})")
