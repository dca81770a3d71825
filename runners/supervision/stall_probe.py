"""Asks ranks that make no progress for their stacks, and records which one the others wait for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from msgspec import structs

from distrain.runners.protocol.events import StackRequest, Stacks
from distrain.runners.records.stacks import append_stacks
from distrain.runners.records.stall import Condition, RankPhase, RankPosition, Stall
from distrain.runners.supervision import pending_collectives, stack_groups
from distrain.runners.supervision.connection import Connection
from distrain.runners.supervision.live_run import LiveRun
from distrain.runners.supervision.stack_collector import StackCollector
from distrain.runners.system.processes import is_suspended

FIRST_PAUSE_S = 1.0  # between two requests; each is twice as long as the one before
REPEAT_S = 10.0  # the longest
LAST_S = 5.0  # for stacks before ranks are ended
MOST_VIEWERS = 64  # that wait for stacks at a time
BUSY = 0.01  # of a core; a thread that sleeps or waits for a lock uses nothing
_SLOW = (
    RankPhase.DATA,
    RankPhase.CHECKPOINT,
    RankPhase.EVALUATION,
    RankPhase.START,
    RankPhase.COMPILATION,
)
_REPORTED = {  # phases of the trainer, where calls do not tell
    "loading": RankPhase.START,
    "averaging": RankPhase.EVALUATION,
    "evaluating": RankPhase.EVALUATION,
    "saving": RankPhase.CHECKPOINT,
}
_Answers = Mapping[int, Stacks]


class StallProbe:
    """Keeps the `stall` of a run's state; `check` is to be called about once per second.

    Of a script it is unknown whether it evaluates or saves. So before its limit of `stall_s` it is
    stalled only while its stacks do not change, and not in a phase that may take long. A loop looks
    the same at many moments, so a rank that uses the CPU counts only if it waits for others.
    """

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self.collector = StackCollector(run.ranks, run.membership)
        self._is_recorded = False
        self._began_s: float | None = None  # by `time.monotonic`: the clock may be set meanwhile
        self._next_s = 0.0  # when the ranks may be asked again
        self._pause_s = FIRST_PAUSE_S
        self._before: _Answers = {}
        self._answering: set[asyncio.Task[None]] = set()

    async def check(self) -> None:
        """Look for a stall, or for the end of one, unless the ranks are being ended."""
        if self._run.conditions.end_now.is_set():
            return
        if not self._stalled():
            self._end()
        elif time.monotonic() >= self._next_s:
            asked = set(self._run.ranks.by_rank)
            answers = await self.collector.collect()
            for rank, each in answers.items():
                if each.batch_s is not None and rank in self._run.ranks:
                    self._run.stall_watch.record_batch(rank, each.batch_s)
                steps = self._run.evidence.steps
                if each.step > steps.get(rank, 0):  # no window has reported it yet
                    steps[rank] = each.step
            if stalled := self._stalled():  # still
                self._judge(stalled, asked, answers)

    def answer(self, viewer: Connection) -> None:
        """Begin to send the stacks of all ranks to a viewer, and to keep them in the record."""
        if len(self._answering) < MOST_VIEWERS:
            task = asyncio.get_running_loop().create_task(self._answer(viewer))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        else:
            viewer.send(StackRequest())  # an answer without stacks

    async def _answer(self, viewer: Connection) -> None:
        answers = await self.collector.collect()
        self._save(answers.values())  # before the answer: a viewer then reads the record
        for each in answers.values():
            if each.threads:
                viewer.send(each)
        viewer.send(StackRequest())  # the end of the answer

    async def save(self) -> None:
        """Keep the stacks of ranks that are about to be ended, unless that takes too long.

        Note which rank a stop waits for that is overdue.
        """
        run = self._run
        if run.ranks or run.ranks.leaving:
            asked = set(run.ranks.by_rank)
            with suppress(TimeoutError):
                answers = await asyncio.wait_for(self.collector.collect(), LAST_S)
                self._save(answers.values())
                positions = self._positions([], asked, answers)
                if run.evidence.stop_overdue and positions:
                    run.evidence.stop_delay = _stall(positions, answers, time.time()).cause

    # --- which ranks -----------------------------------------------------------------------

    def _stalled(self) -> list[int]:
        """Return the ranks that make no progress.

        Of ranks that report in a journal nobody knows here what they are doing now.
        """
        run, watch = self._run, self._run.stall_watch
        if not run.has_begun:
            watch.restart()
        if run.is_job_queued:  # Slurm has suspended it, with its ranks
            for rank in run.ranks.by_rank:
                watch.record_progress(rank)
            return []
        stalled = {rank for rank in watch.stalled() if rank in run.ranks}
        if len(run.evidence.ended) >= run.plan.world_size:
            stalled |= {rank for rank in run.lingering if watch.is_exit_overdue(rank)}
        if watch.is_start_overdue:
            stalled |= set(run.absent_ranks)
        return sorted(stalled)

    def _is_certain(
        self, stalled: list[int], absent: list[int], positions: list[RankPosition], same: bool
    ) -> bool:
        """Return whether a script has stalled; `same`: its calls have not changed."""
        watch = self._run.stall_watch
        exiting = (each.rank for each in positions if each.phase == RankPhase.EXIT)
        if any(map(watch.is_exit_overdue, exiting)):
            return True
        # Ranks may wait for one that evaluates, as long as that one is not overdue itself.
        waits_for_evaluation = any(map(watch.is_evaluating, absent))
        if any(map(watch.is_overdue, absent if waits_for_evaluation else stalled)):
            return True
        return same and not any(each.phase in _SLOW for each in positions)

    def _are_evaluating(self, absent: list[int], stalled: list[int]) -> bool:
        """Return whether the ranks that the others wait for go on with an evaluation."""
        watch = self._run.stall_watch
        return all(rank not in stalled and watch.is_evaluating(rank) for rank in absent)

    # --- the stall -------------------------------------------------------------------------

    def _end(self) -> None:
        stall = self._run.writer.state.stall
        if stall is not None and (self._run.ranks or self._is_recorded):
            self._run.set_state(stall=None, stall_ended=time.time())
            # Otherwise the run has ended, or is about to, or its job was suspended.
            is_over = self._run.evidence.ended or self._run.is_job_queued
            if self._run.ranks and not is_over:
                seconds = time.time() - self._since(stall.since)
                self._run.notice(f"the run continues after a stall of {seconds:.0f} s", "info")
        self._is_recorded = False
        self._began_s = None
        self._next_s, self._pause_s = 0.0, FIRST_PAUSE_S
        self._before = {}

    def _judge(self, stalled: list[int], asked: set[int], answers: _Answers) -> None:
        """Record the stall, if it is certain; `asked` are the ranks that could have answered."""
        run = self._run
        before, self._before = self._before, answers
        positions = self._positions(stalled, asked, answers)
        are_same = _main_frames(before) == _main_frames(answers)
        if stack_groups.are_computing(positions, busy_ranks(before, answers)):
            are_same = False
        self._next_s = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, REPEAT_S)
        # torch.compile may compile at any time, as for a batch of another size.
        is_compiling = any(each.phase == RankPhase.COMPILATION for each in positions)
        is_in_doubt = run.evidence.is_script or is_compiling
        stall = _stall(positions, answers, since=0.0)
        if self._are_evaluating(stall.ranks, stalled):
            self._end()
            self._next_s = time.monotonic() + REPEAT_S
            return
        if is_in_doubt and not self._is_certain(stalled, stall.ranks, positions, are_same):
            return
        self._is_recorded = True
        first = run.writer.state.stall
        since = first.since if first else self._last_progress(stalled)
        stall = structs.replace(stall, since=self._since(since))
        run.set_state(stall=stall)
        run.evidence.note_stall(stall)
        if first is None:
            run.notice(stall.describe(time.time()), "info")
            self._save(answers.values())

    def _last_progress(self, stalled: list[int]) -> float:
        """Return the Unix time of the last progress."""
        return time.time() - max(map(self._run.stall_watch.pause_of, stalled))

    def _since(self, at: float) -> float:
        """Return when the stall began, at first `at`, in Unix time of the clock as it is now."""
        now_s, now = time.monotonic(), time.time()
        if self._began_s is None:
            self._began_s = now_s - (now - at)
        return now - (now_s - self._began_s)

    def _positions(
        self, stalled: list[int], asked: set[int], answers: _Answers
    ) -> list[RankPosition]:
        """Return where the ranks are that are stalled, that train and that have not exited yet.

        Ranks that have exited are among them if all others wait.
        """
        run = self._run
        connected, lingering, pids = run.ranks.by_rank.keys(), run.lingering, run.ranks.processes
        active = (asked & connected) - run.evidence.ended
        positions = [
            self._position(rank, answers.get(rank), pids.get(rank), rank in lingering)
            for rank in sorted({*stalled, *active, *lingering})
        ]
        if all(each.collective or each.phase in stack_groups.MAY_WAIT for each in positions):
            gone = run.evidence.ended - connected - pids.keys()
            positions += [self._position_of_gone(rank) for rank in sorted(gone)]
        return positions

    def _position(
        self, rank: int, answer: Stacks | None, pid: int | None, is_lingering: bool
    ) -> RankPosition:
        run = self._run
        frames = stack_groups.main_frames(answer) if answer else []
        group = pending_collectives.pending_of(answer.collectives) if answer else None
        return RankPosition(
            rank=rank,
            since=self._last_progress([rank]),
            step=run.evidence.steps.get(rank, 0),
            phase=RankPhase.EXIT if is_lingering else self._phase(rank, answer),
            condition=self._condition(rank, answer, pid),
            call=stack_groups.users_call(frames),
            collective=group.pending if group else "",
            sequence=(group.pending_number or group.newest) if group else None,
        )

    def _position_of_gone(self, rank: int) -> RankPosition:
        """Return the position of a rank that has exited, for which others may wait forever."""
        step = self._run.evidence.steps.get(rank, 0)
        since = self._last_progress([rank])
        return RankPosition(rank=rank, since=since, step=step, condition=Condition.EXITED)

    def _phase(self, rank: int, answer: Stacks | None) -> str:
        if not self._run.ranks.has_greeted(rank):
            return RankPhase.START
        reported = _REPORTED.get(self._run.stall_watch.phase_of(rank), "")
        return (stack_groups.phase_of_rank(answer) if answer else "") or reported

    def _condition(self, rank: int, answer: Stacks | None, pid: int | None) -> str:
        """Return why a rank does not answer, as far as this host knows."""
        if (answer and answer.is_suspended) or (pid is not None and is_suspended(pid)):
            return Condition.STOPPED
        is_silent = answer is None or answer.is_from_outside
        return Condition.UNRESPONSIVE if is_silent and rank in self._run.ranks else ""

    def _save(self, answers: Iterable[Stacks]) -> None:
        """Keep stacks in the record; where no rank has answered, the last ones remain."""
        if found := [each for each in answers if each.threads]:
            with suppress(OSError):  # such as of a full disk
                append_stacks(self._run.writer.dir, found)


def _main_frames(answers: _Answers) -> dict[int, object]:
    return {rank: stack_groups.main_frames(each) for rank, each in answers.items()}


def busy_ranks(before: Mapping[int, Stacks], answers: Mapping[int, Stacks]) -> set[int]:
    """Return the ranks whose main thread has used the CPU between two answers."""
    return {
        rank
        for rank, each in answers.items()
        if (last := before.get(rank)) and each.cpu_s - last.cpu_s > BUSY * (each.time - last.time)
    }


def _stall(positions: list[RankPosition], answers: _Answers, since: float) -> Stall:
    """Return the stall of ranks at these positions."""
    collectives = {rank: each.collectives for rank, each in answers.items()}
    behind = pending_collectives.find_behind(
        {rank: groups for rank, groups in collectives.items() if not answers[rank].is_from_outside}
    )
    mismatch = ""
    if all(each.collective and not each.condition for each in positions) and not behind:
        mismatch = pending_collectives.describe_mismatch(collectives)
    everyone = [each.rank for each in positions]
    absent = everyone if mismatch else stack_groups.find_absent(positions, behind)
    # Calls do not tell that ranks wait where collectives do not block Python, as those of NCCL.
    positions = [
        structs.replace(each, phase=RankPhase.COLLECTIVE)
        if each.collective and each.rank not in absent and each.phase not in stack_groups.MAY_WAIT
        else each
        for each in positions
    ]
    return Stall(
        since=since,
        ranks=absent,
        waiting=stack_groups.describe_others(positions, absent),
        mismatch=mismatch,
        positions=positions,
    )
