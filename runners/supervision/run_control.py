"""What distrain may do to the ranks of a run: stop them, and let go of those that have ended."""

from __future__ import annotations

import math
import time

from distrain.runners import formatting
from distrain.runners.protocol.events import Notice, Stop
from distrain.runners.supervision.connection import Connection
from distrain.runners.supervision.live_run import LiveRun
from distrain.runners.supervision.stop_protocol import StopProtocol


class RunControl:
    """Controls a run that distrain has started, for its viewers, launcher and node agents."""

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self.stop_protocol = StopProtocol(run, self.stop_unanswered)

    def stop(self, now: bool = False, save: bool = True, restart: bool = False) -> None:
        """Stop the ranks, and end the run unless `restart`.

        - By default all ranks stop after the same step, with a checkpoint; then the run ends.
        - With `save=False` they do the same without a checkpoint.
        - With `restart` they stop in the same way, but the run does not end: its launcher restarts
          them.
        - With `now` the run ends at once. So does, in all cases, a run that is queued or still
          waits for its ranks, because no rank could answer.
        """
        run, evidence = self._run, self._run.evidence
        if evidence.stop_requested_at == -math.inf:
            evidence.stop_requested_at = time.monotonic()
        no_rank_can_answer = run.is_waiting and not run.ranks
        if now or evidence.queued or no_rank_can_answer:
            evidence.stopped_now = True
            if run.is_job_queued and not run.writer.state.facts:
                evidence.queued = True
            if not evidence.queued:
                run.set_state(status="stopping")
            run.conditions.end_now.set()
            return
        if not restart:
            run.set_state(status="stopping")
            if evidence.interrupted:  # ranks whose job was to be requeued
                run.conditions.interrupt.set()
        self.stop_protocol.begin(save)

    def terminate(self) -> None:
        """Stop the ranks because the supervisor has received SIGTERM, as at a shutdown."""
        evidence = self._run.evidence
        evidence.has_received_sigterm = True
        if not evidence.stop_requested:
            evidence.stop_origin = "by SIGTERM"
        self.stop()

    def handle(self, connection: Connection, request: Stop) -> None:
        """Handle a stop that a peer has requested."""
        if connection in self._run.membership:
            self._handle_signalled_node(connection)
            return
        if connection is self._run.launcher:
            self._run.evidence.stop_origin = "shortly before the job's time limit"
        if reason := self.refusal(request):
            connection.send(Notice(time=time.time(), text=reason))
        else:
            self.stop(now=request.now, restart=request.restart)

    def refusal(self, request: Stop) -> str:
        """Return why the run cannot be stopped; empty if it can."""
        return ""

    def stop_unanswered(self) -> None:
        """Interrupt the ranks of a script, which have not stopped by themselves.

        Their job goes on if it will be requeued.
        """
        self._run.evidence.interrupted = True
        if self._run.is_stopping or not self._run.is_requeued_by_scheduler:
            self._run.conditions.interrupt.set()
        self._run.membership.broadcast(Stop())

    def release(self, rank: int) -> None:
        """Disconnect a rank that has ended and waits for that, as one that has joined does."""
        if rank in self._run.ranks.joined:
            self._run.ranks.close({rank})

    def note_preemption(self) -> None:
        """Note that the scheduler stops the ranks, and tell the launcher, which follows the job."""
        if self._run.scheduler is None:
            return
        self._run.evidence.stop_origin = f"by {self._run.scheduler.name}"
        if self._run.launcher:
            self._run.launcher.send(Stop(restart=True))

    def _handle_signalled_node(self, node: Connection) -> None:
        """Stop the ranks because the scheduler has sent a node agent the signal to end.

        That happens when the job is cancelled or preempted. Some time later everything on the node
        is killed, which often leaves enough time for a checkpoint.
        """
        conditions = self._run.conditions
        is_ending = conditions.trouble.is_set() or conditions.end_now.is_set()
        if is_ending or not self._run.ranks:
            node.send(Stop(now=True))
        elif not self._run.evidence.stop_requested:
            self.note_preemption()
            self.stop(restart=True)


class ObservedRunControl(RunControl):
    """Controls a run that distrain only observes: it can be asked to stop, and is never ended."""

    def refusal(self, request: Stop) -> str:
        if request.now:
            return "distrain did not start this program and does not end it"
        if absent := self._run.absent_ranks:
            return f"{formatting.ranks(absent)} cannot be asked: not connected"
        if not self.stop_protocol.is_supported:
            return "its program does not call distrain.should_stop() on every rank"
        return ""

    def stop_unanswered(self) -> None:
        """Take the stop back, unless the ranks have agreed on the step in which they leave."""
        if self.stop_protocol.is_decided:
            return
        self.stop_protocol.take_back()
        self._run.set_state(status="running")
        limit = formatting.duration(self._run.config.report.stop_timeout_s)
        self._run.notice(f"the stop was given up: not all ranks have answered within {limit}")

    def release(self, rank: int) -> None:
        """Keep the connection: the rank waits until the record is complete."""
