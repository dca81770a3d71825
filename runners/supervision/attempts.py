"""How ranks that are started again continue in the same record.

torchrun or a scheduler may restart them, and so may their own program.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from distrain.runners import formatting
from distrain.runners.protocol.events import Attempt, Hello
from distrain.runners.records.checkpoint_files import step_of_last
from distrain.runners.supervision.live_run import LiveRun
from distrain.runners.supervision.outcome import judge
from distrain.runners.supervision.step_offsets import StepOffsets
from distrain.runners.supervision.stop_protocol import StopProtocol


class Attempts:
    """Begins an attempt once restarted ranks connect.

    It continues from the checkpoint at which the ranks resume, and the later steps of the last
    attempt are discarded. `number` is that of the ranks, `nodes_number` that of the node agents,
    which connect first. They count how often the scheduler has queued the job again.
    """

    def __init__(self, run: LiveRun, stop_protocol: StopProtocol) -> None:
        self._run = run
        self._stop_protocol = stop_protocol
        self.number = 0
        self.nodes_number = 0
        self.step_offsets = StepOffsets()
        self._restarts: dict[str, int] = {}  # of each host whose ranks have connected

    @property
    def latest(self) -> int:
        return max(self.number, self.nodes_number)

    def is_another(self, hello: Hello) -> bool:
        """Return whether a rank that connects has been restarted.

        It may be one that had not connected before its restart, while others of its host had.
        """
        restart = self._restarts.get(hello.host, hello.restart)
        has_greeted = self._run.ranks.has_greeted(hello.rank)
        return has_greeted or hello.attempt > self.number or hello.restart > restart

    def note(self, hello: Hello) -> None:
        """Note that a rank of the current attempt has connected."""
        if not hello.joined:  # what a program starts itself does not know
            self._restarts[hello.host] = hello.restart

    def begin(self, number: int, step: int | None = None, reason: str = "") -> None:
        """Begin an attempt of ranks that resume after `step`, by default the last checkpoint."""
        run, evidence = self._run, self._run.evidence
        if step is None:
            step = self._resume_step()
        reason = reason or self._restart_reason(number)
        last_step = max(evidence.steps.values(), default=step)
        is_stopping = run.is_stopping
        run.ranks.discard_all()
        self._restarts.clear()
        run.stall_watch.reset()
        kept = {"stop_origin": evidence.stop_origin} if is_stopping else {}
        evidence.reset(job=evidence.job, stop_requested=is_stopping, **kept)
        self.step_offsets.reset()
        run.script_evaluations.reset()
        run.script_checks.reset()
        self._stop_protocol.reset(keep_timeout=is_stopping)
        run.conditions.reset_for_attempt()
        self.number = number
        count = run.writer.state.attempts + 1
        run.writer.add(
            Attempt(
                time=time.time(),
                number=count,
                step=step,
                lost=max(last_step, step),
                reason=reason,
                counts_from_zero=run.config.is_script,
            )
        )
        run.set_state(attempts=count, status="stopping" if is_stopping else "running")

    def readmit(self, rank: int) -> None:
        """Continue with a rank that its program has started again after its end.

        Ranks that had finished continue after their last step. Once any has failed and none is
        left, all begin a new attempt, like ranks that a launcher restarts.
        """
        run, evidence = self._run, self._run.evidence
        if run.ranks.any_is_alive:
            self._continue([rank])
        elif evidence.failures or evidence.disconnected:
            self.begin(self.number)
        else:
            self._continue(range(run.plan.world_size))
            run.ranks.discard_all()
            run.script_evaluations.reset()
            self._stop_protocol.reset(keep_timeout=True)

    def _continue(self, ranks: Sequence[int]) -> None:
        self._run.evidence.reopen(ranks)
        self._run.conditions.all_finished.clear()
        last_step = self.step_offsets.begin(ranks)
        verb, steps = ("was", "its steps") if len(ranks) == 1 else ("were", "their steps")
        text = f"{formatting.ranks(ranks)} {verb} started again by the program: {steps} continue"
        self._run.notice(f"{text} after step {last_step:,}", "info")

    def _restart_reason(self, number: int) -> str:
        is_requeued = self._run.scheduler is not None and number > self.number
        if is_requeued and not self._run.evidence.unreachable:
            return "the job was requeued"
        return judge(self._run.evidence).reason

    def _resume_step(self) -> int:
        """Return the step after which restarted ranks resume: that of the last checkpoint.

        What a script has saved is unknown, and it counts its steps from its beginning.
        """
        if self._run.config.is_script:
            return 0
        step = step_of_last(self._run.writer.dir / "checkpoints")
        if step is not None:
            return step
        facts = self._run.writer.state.facts
        return facts.start_step if facts else 0
