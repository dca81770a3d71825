"""What ranks, node agents, launchers and viewers send to a supervisor, and what it answers."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Protocol

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
from distrain.runners.records import job_status
from distrain.runners.records.journal import JournalWriter
from distrain.runners.records.writer import Item, RecordWriter
from distrain.runners.supervision.connection import Connection
from distrain.runners.supervision.disconnections import DisconnectionHandler
from distrain.runners.supervision.evidence import Evidence, RunConditions
from distrain.runners.supervision.membership import Membership
from distrain.runners.supervision.outcome import judge
from distrain.runners.supervision.rank_connections import RankConnections
from distrain.runners.supervision.script_checks import NOT_STEPPED, ScriptChecks
from distrain.runners.supervision.script_evaluations import ScriptEvaluations
from distrain.runners.supervision.stall_watch import StallWatch
from distrain.runners.supervision.stop_protocol import StopProtocol
from distrain.runners.system.devices import device_of_rank

MAX_JOINED = 65_536  # ranks that a program may start by itself


class StateSetter(Protocol):
    def __call__(self, **changes: Any) -> object: ...


class Coordinator:
    """Handles the events of all connections, in order of arrival.

    Events update the evidence and the stall watch, and go to the record. `evidence` is what the
    outcome is decided from; `conditions` are set when the supervisor has to act.

    torchrun or a scheduler may restart the ranks. That is a new attempt: it continues from the
    checkpoint at which the ranks resume, and the later steps of the last attempt are discarded.
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
        self.config = config
        self.plan = plan
        self.writer = writer
        self.set_state = set_state
        self.scheduler = scheduler
        self.launcher: Connection | None = None
        self.conditions = RunConditions()
        self.evidence = Evidence(
            world_size=plan.world_size,
            is_script=config.is_script,
            ends_by_itself=config.is_script
            and (plan.observed or config.launcher in ("inline", "torchrun"))
            and not plan.spread,
            watchdog_aborts=plan.backend in ("nccl", "horovod"),
            queued=writer.state.status == "queued",
        )
        self.ranks = RankConnections(host)
        self.membership = Membership(writer.state.run_id, config, plan, host, self._save_hosts)
        self.stall_watch = StallWatch(self.evidence, config.report.stall_s)
        self.script_evaluations = ScriptEvaluations(self.evidence)
        self.script_checks = ScriptChecks(self.evidence)
        self.stop_protocol = StopProtocol(
            self.ranks,
            self.evidence,
            self.conditions,
            config.report.stop_timeout_s,
            self._on_stop_failed if plan.observed else lambda: self.membership.broadcast(Stop()),
            only_asks=plan.observed,
        )
        self._disconnections = DisconnectionHandler(
            plan,
            self.ranks,
            self.membership,
            self.evidence,
            self.conditions,
            self._report_unreachable,
        )
        # Attempts are numbered as the scheduler counts how often it has queued the job again.
        self._attempt = 0
        self._nodes_attempt = 0
        self._is_replaying = False

    @property
    def may_restart(self) -> bool:
        """Whether torchrun or the scheduler may start the ranks again."""
        return self.scheduler is not None or self.config.dist.max_restarts > 0

    @property
    def is_complete(self) -> bool:
        """Whether every rank has done all its steps."""
        has_stopped = any(finished.stopped for finished in self.evidence.finished.values())
        return self.conditions.all_finished.is_set() and not has_stopped

    @property
    def is_job_queued(self) -> bool:
        """Whether the ranks are a scheduler's job that waits for its start."""
        return job_status.is_queued(self.evidence.job)

    @property
    def is_stopping(self) -> bool:
        """Whether somebody has asked the run to end, not only its ranks to be restarted."""
        return self.writer.state.status == "stopping"

    @property
    def absent_ranks(self) -> list[int]:
        """The ranks that have never connected in this attempt."""
        return [r for r in range(self.plan.world_size) if not self.ranks.has_greeted(r)]

    @property
    def _is_waiting(self) -> bool:
        """Whether ranks cannot begin yet: their job is queued, or hosts have still to join."""
        waits_for_hosts = self.scheduler is None and bool(self.membership.missing)
        return self.is_job_queued or waits_for_hosts

    def notice(self, text: str, level: Literal["info", "warning"] = "warning") -> None:
        """Add a notice to the record. A journal that is replayed has its notices already."""
        if not self._is_replaying:
            self.writer.add(Notice(time=time.time(), text=text, level=level))

    def _save_hosts(self) -> None:
        self.set_state(hosts=self.membership.hosts)

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
            self._grow(event.world_size)
        rank = getattr(event, "rank", None) or 0
        if not 0 <= rank < self.plan.world_size:
            connection.refuse(f"there is no rank {rank} in this run")
            return
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
                self._handle_stop(connection, event)
            case Stopping():
                self.stop_protocol.add_answer(event.rank, event.step)
            case RankEvaluation():
                if evaluation := self.script_evaluations.add(event):
                    self.writer.add(evaluation)
                self._explain_missing_evaluation()
            case RankFacts():
                for text in self.script_checks.add(event, connection.host):
                    self.notice(text)
            case StopSupport():
                self.stop_protocol.note_support(event.rank)
            case Attempt() | Welcome() | RunEnded() | StopAt() | Requeue():
                connection.refuse("only the supervisor may send this event")
            case Job() if self.scheduler is None:
                connection.refuse("this run is not a scheduler's job")
            case _:
                self._update_evidence(event)
                self.writer.add(event)

    def replay(self, item: Item | dict[str, Any]) -> None:
        """Apply an entry of the journal that the relay on the job's node has written."""
        self._is_replaying = True
        match item:
            case dict():
                self.set_state(**item)
            case Attempt():
                self._start_attempt(self._attempt, item.step, item.reason)
            case Window():
                self._add_window(item)
            case Event():
                if isinstance(item, Hello) and self.plan.spread:
                    self.evidence.hosts[item.rank] = item.host
                self._update_evidence(item)
                self.writer.add(item)
            case _:
                self.writer.add(item)
        self._is_replaying = False

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
        latest = max(self._attempt, self._nodes_attempt)
        match hello.role:
            case "rank" | "node" | "task" if hello.attempt < latest:
                connection.refuse("the ranks have been restarted since")
            case "rank":
                self._greet_rank(connection, hello)
            case "node" | "task":
                if hello.attempt > self._nodes_attempt:
                    self._nodes_attempt = hello.attempt
                    self.membership.reset()
                self.membership.join(connection, hello)
            case "launcher":
                self.launcher = connection

    def _greet_rank(self, connection: Connection, hello: Hello) -> None:
        is_restarted = self.ranks.has_greeted(hello.rank) or hello.attempt > self._attempt
        if self.may_restart and is_restarted:
            self._start_attempt(hello.attempt, self._resume_step())
        if hello.joined:
            self.ranks.hand_over(hello.rank)
        if hello.rank in self.ranks or (hello.joined and hello.rank in self.evidence.ended):
            connection.refuse(f"rank {hello.rank} is already connected")
            return
        hello = self._with_device(hello)
        self.ranks.add(connection, hello)
        if self.plan.spread:
            self.evidence.hosts[hello.rank] = hello.host
        self.stall_watch.record_progress()
        self.writer.add(structs.replace(hello, token=""))
        self.stop_protocol.ask_if_begun(connection)

    def _grow(self, world_size: int) -> None:
        """Take up the ranks that the program of a run with a single rank has started itself."""
        is_single = self.config.is_script and self.config.launcher == "inline"
        if is_single and self.plan.world_size == 1 < world_size <= MAX_JOINED:
            self.plan = structs.replace(self.plan, world_size=world_size)
            self.evidence.world_size = world_size
            self.set_state(plan=self.plan)

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
                if event.rank in self.ranks.joined and not self.plan.observed:
                    self.ranks.close({event.rank})
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
        if not self.evidence.ends_by_itself:
            self.conditions.trouble.set()

    def _save_facts(self, facts: Facts) -> None:
        """Save the facts of the first attempt, which contain the step at which the run began."""
        if self.writer.state.facts is None:
            self.set_state(facts=facts)
            for text in facts.notices:
                self.notice(text)

    def _note_finished(self, event: Finished) -> None:
        self.evidence.finished[event.rank] = event
        if event.rank in self.ranks.joined and not self.plan.observed:
            self.ranks.close({event.rank})
        if len(self.evidence.finished) < self.plan.world_size:
            return
        self.conditions.all_finished.set()
        self._explain_missing_evaluation()
        if self.script_checks.ended_without_step:
            self.notice(NOT_STEPPED, "info")
        # Ranks that stopped without our request were asked to by the scheduler.
        have_stopped = any(finished.stopped for finished in self.evidence.finished.values())
        if have_stopped and not self.evidence.stop_requested:
            self._note_preemption()

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
            self.stop(save=False)

    def _note_job(self, job: Job) -> None:
        self.evidence.job = job
        if not self.is_job_queued or self.ranks:
            if self.writer.state.status == "queued":
                self.set_state(job=job, status="running")
            else:
                self.set_state(job=job)
        elif self.is_stopping:
            self.stop()
        else:
            self.set_state(job=job, status="queued")

    def disconnected(self, connection: Connection) -> None:
        """Handle the end of a connection that had greeted."""
        self._disconnections.handle(connection)
        self.stop_protocol.decide()

    def _report_unreachable(self, host: str, since: float) -> None:
        self.notice(f"{host} has not answered since {formatting.time_of_day(since)}")
        # The scheduler may notice much later, or never; until then the job keeps its nodes.
        if self.scheduler and self.scheduler.requeues and self.launcher:
            self.launcher.send(Requeue())

    # --- a new attempt ---------------------------------------------------------------------

    def _start_attempt(self, attempt: int, step: int, reason: str = "") -> None:
        """Begin a new attempt of restarted ranks, which resume after `step`."""
        reason = reason or self._restart_reason(attempt)
        number = self.writer.state.attempts + 1
        last_step = max(self.evidence.steps.values(), default=step)
        self.ranks.discard_all()
        self.stall_watch.reset()
        self.evidence.reset(job=self.evidence.job, stop_requested=self.is_stopping)
        self.script_evaluations.reset()
        self.script_checks.reset()
        self.stop_protocol.reset(keep_timeout=self.is_stopping)
        self.conditions.reset_for_attempt()
        self._attempt = attempt
        self.writer.add(
            Attempt(
                time=time.time(),
                number=number,
                step=step,
                lost=max(last_step, step),
                reason=reason,
            )
        )
        self.set_state(attempts=number, status="stopping" if self.is_stopping else "running")

    def _restart_reason(self, attempt: int) -> str:
        is_requeued = self.scheduler is not None and attempt > self._attempt
        if is_requeued and not self.evidence.unreachable:
            return "the job was requeued"
        return judge(self.evidence).reason

    def _resume_step(self) -> int:
        """Return the step after which restarted ranks resume: that of the last checkpoint."""
        last = self.writer.dir / "checkpoints" / "last.pt"
        if last.exists():
            return int(last.resolve().stem.removeprefix("step-"))
        facts = self.writer.state.facts
        return facts.start_step if facts else 0

    # --- a stop ----------------------------------------------------------------------------

    def stop(self, now: bool = False, save: bool = True, restart: bool = False) -> None:
        """Stop the ranks, and end the run unless `restart`.

        - By default all ranks stop after the same step, with a checkpoint; then the run ends.
        - With `save=False` they do the same without a checkpoint.
        - With `restart` they stop in the same way, but the run does not end: its launcher restarts
          them.
        - With `now` the run ends at once. So does, in all cases, a run that is queued or still
          waits for its ranks, because no rank could answer.
        """
        no_rank_can_answer = self._is_waiting and not self.ranks
        if now or self.evidence.queued or no_rank_can_answer:
            self.evidence.stopped_now = True
            if self.is_job_queued and not self.writer.state.facts:
                self.evidence.queued = True
            self.conditions.end_now.set()
            return
        if not restart:
            self.set_state(status="stopping")
        self.stop_protocol.begin(save)

    def _handle_stop(self, connection: Connection, event: Stop) -> None:
        if connection in self.membership:
            self._handle_signalled_node(connection)
            return
        if connection is self.launcher:
            self.evidence.stop_origin = "shortly before the job's time limit"
        if self.plan.observed and (reason := self._stop_refusal(event)):
            connection.send(Notice(time=time.time(), text=reason))
            return
        self.stop(now=event.now, restart=event.restart)

    def _stop_refusal(self, stop: Stop) -> str:
        """Return why a run that distrain did not start cannot be stopped; empty if it can."""
        if stop.now:
            return "distrain did not start this program and does not end it"
        if self.absent_ranks:
            return f"{formatting.ranks(self.absent_ranks)} cannot be asked: not connected"
        if not self.stop_protocol.is_supported:
            return "its program does not call distrain.should_stop() on every rank"
        return ""

    def _on_stop_failed(self) -> None:
        self.set_state(status="running")
        limit = formatting.duration(self.config.report.stop_timeout_s)
        self.notice(f"the stop was given up: not all ranks have answered within {limit}")

    def _handle_signalled_node(self, node: Connection) -> None:
        """Stop the ranks because the scheduler has sent a node agent the signal to end.

        That happens when the job is cancelled or preempted. Some time later everything on the node
        is killed, which often leaves enough time for a checkpoint.
        """
        is_ending = self.conditions.trouble.is_set() or self.conditions.end_now.is_set()
        if is_ending or not self.ranks:
            node.send(Stop(now=True))
        elif not self.evidence.stop_requested:
            self._note_preemption()
            self.stop(restart=True)

    def _note_preemption(self) -> None:
        """Note that the scheduler stops the ranks, and tell the launcher, which follows the job."""
        if self.scheduler is None:
            return
        self.evidence.stop_origin = f"by {self.scheduler.name}"
        if self.launcher:
            self.launcher.send(Stop(restart=True))

    def report_stall(self) -> None:
        """Add a notice once training makes no progress."""
        if text := self.stall_watch.describe_stall():
            self.notice(text)
