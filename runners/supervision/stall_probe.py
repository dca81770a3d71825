"""Asks ranks that make no progress for their stacks, and records which one the others wait for."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

from distrain.runners.protocol.events import StackRequest, Stacks
from distrain.runners.records.stacks import append_stacks
from distrain.runners.records.stall import STOPPED, UNRESPONSIVE, Stall
from distrain.runners.supervision import stack_groups
from distrain.runners.supervision.connection import Connection
from distrain.runners.supervision.live_run import LiveRun
from distrain.runners.supervision.stall_watch import STEPPING

ANSWER_S = 1.0  # a rank that runs Python code answers within this time
REPEAT_S = 10.0  # between two requests, once a stall is recorded
_SLOW = ("data", "checkpoint", "evaluation", "start", "exit")  # phases of scripts
MOST_VIEWERS = 64  # that wait for answers


class StallProbe:
    """Keeps the `stall` of a run's state; `check` is to be called about once per second.

    Of a script it is unknown whether it evaluates or saves. So before its limit of `stall_s` it is
    stalled only while its stacks do not change, and not in a phase that may take long.
    """

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self._number = 0  # of the last request
        self._asked = 0  # of the last one that no viewer has sent
        self._viewers: dict[int, Connection] = {}
        self._asked_at: float | None = None
        self._answers: dict[int, Stacks] = {}
        self._before: dict[int, Stacks] = {}

    def check(self) -> None:
        """Look for a stall, or for the end of one."""
        # Of ranks that report in a journal nobody knows what they are doing now.
        stalled = [r for r in self._run.stall_watch.stalled() if r in self._run.ranks]
        stall = self._run.writer.state.stall
        if not stalled:
            if stall is not None:
                self._run.set_state(stall=None)
                seconds = time.time() - stall.since
                self._run.notice(f"the run continues after a stall of {seconds:.0f} s", "info")
            self._asked_at = None
            self._before = {}
            return
        now = time.monotonic()
        if self._asked_at is None or now - self._asked_at >= REPEAT_S:
            self._ask(now)
        elif self._answers is not self._before and now - self._asked_at >= ANSWER_S:
            self._judge(stalled)

    def _ask(self, now: float) -> None:
        self._asked = self._number = self._number + 1
        self._asked_at = now
        self._answers = {}
        self._run.ranks.broadcast(StackRequest(number=self._number))

    def ask_for(self, viewer: Connection) -> None:
        """Ask all ranks, and pass their answers on to a viewer."""
        self._number += 1
        self._viewers[self._number] = viewer
        self._viewers.pop(self._number - MOST_VIEWERS, None)
        self._run.ranks.broadcast(StackRequest(number=self._number))

    def add(self, answer: Stacks) -> None:
        """Take the answer of a rank. What a viewer has asked for is kept too."""
        if viewer := self._viewers.get(answer.number):
            viewer.send(answer)
            self._keep([answer])
        elif answer.number == self._asked:
            self._answers[answer.rank] = answer

    def _judge(self, stalled: list[int]) -> None:
        run = self._run
        before, self._before = self._before, self._answers
        ranks = [rank for rank in run.ranks.by_rank if rank not in run.evidence.ended]
        phases = {rank: self._phase(rank) for rank in ranks}
        if run.evidence.is_script and not self._is_certain(stalled, phases, before):
            self._asked_at = None
            return
        absent = stack_groups.find_absent(phases, run.evidence.steps)
        first = run.writer.state.stall
        stall = Stall(
            since=first.since if first else time.time() - self._longest_pause(stalled),
            ranks=absent,
            phase=phases[absent[0]] if absent else "",
            call=self._call_of(absent[0]) if absent else "",
            waiting=stack_groups.describe_others(phases, absent),
        )
        run.set_state(stall=stall)
        if first is None:
            run.notice(stall.describe(time.time()), "info")
            self._keep(self._answers.values())

    def _keep(self, answers: Iterable[Stacks]) -> None:
        with suppress(OSError):  # such as of a full disk
            append_stacks(self._run.writer.dir, answers)

    def _longest_pause(self, stalled: list[int]) -> float:
        return max(map(self._run.stall_watch.pause_of, stalled))

    def _phase(self, rank: int) -> str:
        if (answer := self._answers.get(rank)) is None:
            return _process_state(self._run.ranks.pids.get(rank))
        if phase := stack_groups.phase_of(stack_groups.main_frames(answer)):
            return phase
        reported = self._run.stall_watch.phase_of(rank)
        return "" if reported in STEPPING else reported

    def _call_of(self, rank: int) -> str:
        answer = self._answers.get(rank)
        return stack_groups.users_call(stack_groups.main_frames(answer)) if answer else ""

    def _is_certain(
        self, stalled: list[int], phases: dict[int, str], before: dict[int, Stacks]
    ) -> bool:
        if any(map(self._run.stall_watch.is_overdue, stalled)):
            return True
        frames = {rank: stack_groups.main_frames(each) for rank, each in self._answers.items()}
        are_same = {rank: stack_groups.main_frames(each) for rank, each in before.items()} == frames
        return are_same and not any(phase in _SLOW for phase in phases.values())


def _process_state(pid: int | None) -> str:
    """Return why a process does not answer, as far as this host knows."""
    with suppress(psutil.Error):
        if pid is not None and psutil.Process(pid).status() == psutil.STATUS_STOPPED:
            return STOPPED
    return UNRESPONSIVE
