"""What ranks, nodes, launchers and viewers say to a supervisor, and what it answers."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from msgspec import structs

from runners import jobs, words
from runners.config import RunConfig
from runners.events import (
    Attempt,
    Ended,
    Evaluation,
    Event,
    Exited,
    Facts,
    Failure,
    Finished,
    Hello,
    Job,
    Meeting,
    NonFinite,
    Notice,
    Over,
    Phase,
    Printed,
    Requeue,
    Sampled,
    Stop,
    StopAt,
    Stopping,
    Welcome,
    Window,
)
from runners.journal import Journal
from runners.line import Line
from runners.nodes import Nodes
from runners.plan import Plan
from runners.verdict import Evidence, judge
from runners.writer import Item, RecordWriter


class Sets(Protocol):
    def __call__(self, **changes: Any) -> object: ...


class Conversation:
    """Keeps what decides how the run goes on and why it ends, in `seen`; hands the rest to the
    record. The events say when it is time to act: `trouble`, `all_finished`, `end_now`.

    The ranks may be started anew, by torchrun or by Slurm: then what they said before is history,
    and the record goes on from the checkpoint that they go on from.
    """

    def __init__(
        self,
        config: RunConfig,
        plan: Plan,
        writer: RecordWriter | Journal,
        set_state: Sets,
        host: str,
    ) -> None:
        self.config, self.plan, self.writer, self.set_state = config, plan, writer, set_state
        self.host = host
        self.seen = self._nothing_seen(queued=writer.state.status == "queued")
        self.links: dict[int, Line] = {}
        self.launcher: Line | None = None
        self.nodes = Nodes(
            writer.state.run_id, config, plan, host, lambda: set_state(hosts=self.nodes.names)
        )
        self.pids: dict[int, int] = {}
        self.phases: dict[int, str] = {}
        self.progress = time.monotonic()
        self.stalled = False
        self.trouble = asyncio.Event()
        self.end_now = asyncio.Event()
        self.all_finished = asyncio.Event()
        self._answers: dict[int, int] = {}
        self._save = True
        self._spoke: set[int] = set()
        self._attempt = self._nodes_attempt = 0  # as Slurm counts them
        self._timer: asyncio.TimerHandle | None = None
        self._at_second_hand = False

    def _nothing_seen(self, **known: Any) -> Evidence:
        return Evidence(
            world_size=self.plan.world_size,
            aborts=self.plan.backend in ("nccl", "horovod"),
            **known,
        )

    @property
    def restarts(self) -> bool:
        """Whether another than we may start the ranks anew."""
        return self.plan.scheduled or self.config.dist.max_restarts > 0

    @property
    def complete(self) -> bool:
        """Whether every rank has done all its steps."""
        left = self.seen.finished.values()
        return self.all_finished.is_set() and not any(finished.stopped for finished in left)

    @property
    def in_the_queue(self) -> bool:
        """Whether the ranks are a scheduler's job that waits."""
        return jobs.in_the_queue(self.seen.job)

    @property
    def is_stopping(self) -> bool:
        """Whether somebody has asked the run to end, not only its ranks to be started anew."""
        return self.writer.state.status == "stopping"

    @property
    def _has_begun(self) -> bool:
        """Whether no other host can come in the place of one that leaves."""
        return self.plan.scheduled or bool(self._spoke)

    @property
    def _waits(self) -> bool:
        """Whether ranks cannot begin yet: for a scheduler's word, or for hosts that join."""
        return self.in_the_queue or (not self.plan.scheduled and bool(self.nodes.missing))

    # --- what is heard ---------------------------------------------------------------------

    def heard(self, link: Line, event: Event) -> None:
        """One line of any connection, in order of arrival; most of them are windows."""
        if link.forgotten:
            return
        if not 0 <= (rank := getattr(event, "rank", None) or 0) < self.plan.world_size:
            link.refuse(f"there is no rank {rank} in this run")
            return
        match event:
            case Window():
                self._went_on(event)
            case Sampled():
                for sample in self.nodes.samples(link, event):
                    self.writer.add(sample)
            case Printed():
                self._print(event)
            case Hello():
                self._greet(link, event)
            case Meeting():
                self.nodes.met(link, event.place)
            case Over():
                self.nodes.over(link)
            case Stop():
                if link in self.nodes:
                    self._told_to_end(link)
                    return
                if link is self.launcher:
                    self.seen.stopped = "shortly before the job's time limit"
                self.stop(now=event.now, again=event.again)
            case Stopping():
                self._answers[event.rank] = event.step
                self._agree()
            case Attempt() | Welcome() | Ended() | StopAt() | Requeue():
                link.refuse("only the supervisor says that")
            case Job() if not self.plan.scheduled:
                link.refuse("this run is no job")
            case _:
                self._note(event)
                self.writer.add(event)

    def replay(self, item: Item | dict[str, Any]) -> None:
        """What a journal tells: heard elsewhere, and just as good; what follows was told there."""
        self._at_second_hand = True
        match item:
            case dict():
                self.set_state(**item)
            case Attempt():
                self._begin_anew(self._attempt, item.step, item.reason)
            case Window():
                self._went_on(item)
            case Event():
                if isinstance(item, Hello) and self.plan.spread:
                    self.seen.hosts[item.rank] = item.host
                self._note(item)
                self.writer.add(item)
            case _:
                self.writer.add(item)
        self._at_second_hand = False

    def _went_on(self, window: Window) -> None:
        self.seen.steps[window.rank] = window.step
        self.progress, self.stalled = time.monotonic(), False
        self.writer.add(window)

    def _greet(self, link: Line, hello: Hello) -> None:
        latest = max(self._attempt, self._nodes_attempt)
        match hello.role:
            case "rank" | "node" | "task" if hello.attempt < latest:
                link.refuse("the ranks were started anew since")
            case "rank":
                self._greet_rank(link, hello)
            case "node" | "task":
                if hello.attempt > self._nodes_attempt:
                    self._nodes_attempt = hello.attempt
                    self.nodes.begin_anew()
                self.nodes.greet(link, hello)
            case "launcher":
                self.launcher = link

    def _greet_rank(self, link: Line, hello: Hello) -> None:
        if self.restarts and (hello.rank in self._spoke or hello.attempt > self._attempt):
            self._begin_anew(hello.attempt, self._resumed_from())
        if hello.rank in self.links:
            link.refuse(f"rank {hello.rank} speaks already")
            return
        link.rank, link.host = hello.rank, hello.host
        self.links[hello.rank] = link
        if self.plan.spread:
            self.seen.hosts[hello.rank] = hello.host
        self._spoke.add(hello.rank)
        if hello.pid and hello.host in ("", self.host):
            self.pids[hello.rank] = hello.pid  # elsewhere the number is another process's
        self.progress = time.monotonic()
        self.writer.add(structs.replace(hello, token=""))
        if self.seen.stop_asked:
            link.send(Stop())

    def _note(self, event: Event) -> None:
        """Keep what decides how the run goes on and why it ends."""
        match event:
            case Phase():
                self.phases[event.rank] = event.phase
                self.progress = time.monotonic()
            case Facts():
                self._learn(event)
            case Failure():
                self.seen.failures[event.rank] = (time.monotonic(), event)
                self.trouble.set()
            case Finished():
                self.seen.finished[event.rank] = event
                if len(self.seen.finished) == self.plan.world_size:
                    self.all_finished.set()
                    self._all_have_left()
            case Exited():
                self.seen.exits[event.rank] = event
                if event.code:
                    self.trouble.set()
            case NonFinite():
                self._not_finite(event)
            case Evaluation():
                self.progress = time.monotonic()
            case Job():
                self._scheduled(event)

    def _learn(self, facts: Facts) -> None:
        """The first attempt tells where the run began; later ones only go on."""
        if self.writer.state.facts is None:
            self.set_state(facts=facts)
            for text in facts.notices:
                self.notice(text)

    def _not_finite(self, event: NonFinite) -> None:
        if self.config.train.on_nan == "continue":
            self.notice(
                f"the loss of rank {event.rank} became {event.loss} at step {event.step}; "
                "training goes on"
            )
        elif self.seen.nonfinite is None or event.step < self.seen.nonfinite.step:
            # Through the gradients it reaches the others, who may be the first to say so.
            self.seen.nonfinite = event
            self.notice(f"the loss of rank {event.rank} became {event.loss} at step {event.step}")
            self.stop(save=False)

    def _scheduled(self, job: Job) -> None:
        self.seen.job = job
        if self.in_the_queue and not self.links:
            if self.is_stopping:  # which nobody is there to hear
                self.stop()
                return
            self.set_state(job=job, status="queued")
        elif self.writer.state.status == "queued":
            self.set_state(job=job, status="running")
        else:
            self.set_state(job=job)

    def _print(self, printed: Printed) -> None:
        if 0 <= printed.rank < self.plan.world_size:
            log: Path = self.writer.dir / "logs" / f"rank-{printed.rank}.log"
            with suppress(OSError), log.open("a") as file:  # a full disk costs lines, no host
                file.write(printed.text)

    def left(self, link: Line) -> None:
        """A connection has ended."""
        rank, gone = None, self.nodes.left(link)
        if gone and gone.early and self.plan.tasks:
            rank = gone.rank
        elif gone and gone.early and self._has_begun and not self.all_finished.is_set():
            self.seen.deserted.setdefault(gone.host, time.monotonic())
            self.trouble.set()
        host = gone.host if gone else link.host
        if host and link.silent and not self.all_finished.is_set():
            self._silent(host, link.heard_at)
        if link.rank is not None and self.links.get(link.rank) is link:
            rank = link.rank
            del self.links[rank]
            self.pids.pop(rank, None)
        if rank is None or rank in self.seen.finished or rank in self.seen.failures:
            return
        self.seen.vanished.setdefault(rank, time.monotonic())
        self.trouble.set()

    def _silent(self, host: str, since: float) -> None:
        if host not in self.seen.silent:
            self.notice(f"{host} has not answered since {words.clock(since)}")
            # Slurm may notice much later, or never; its job holds what it has until then.
            if self.plan.scheduled and self.config.slurm.requeue and self.launcher:
                self.launcher.send(Requeue())
        self.seen.silent.setdefault(host, since)
        self.trouble.set()

    def notice(self, text: str) -> None:
        if not self._at_second_hand:
            self.writer.add(Notice(time=time.time(), text=text))

    # --- a new attempt ---------------------------------------------------------------------

    def _begin_anew(self, attempt: int, step: int, reason: str = "") -> None:
        """The ranks were started again: take back what they do once more."""
        reason = reason or self._why_anew(attempt)
        number, lost = self.writer.state.attempts + 1, max(self.seen.steps.values(), default=step)
        for link in self.links.values():
            link.forget()
        for known in (self.links, self.pids, self.phases, self._answers, self._spoke):
            known.clear()
        self.seen = self._nothing_seen(job=self.seen.job, stop_asked=self.is_stopping)
        if self._timer and not self.is_stopping:
            self._timer.cancel()
        self.stalled, self._attempt = False, attempt
        self.trouble.clear()
        self.all_finished.clear()
        self.writer.add(
            Attempt(time=time.time(), number=number, step=step, lost=max(lost, step), reason=reason)
        )
        self.set_state(attempts=number, status="stopping" if self.is_stopping else "running")

    def _why_anew(self, attempt: int) -> str:
        """Why the ranks had to be started again, in a sentence."""
        if self.plan.scheduled and attempt > self._attempt and not self.seen.silent:
            return "the job was queued again"
        return judge(self.seen).reason

    def _resumed_from(self) -> int:
        """The step that the ranks go on after: of the last checkpoint, as they find it."""
        last = self.writer.dir / "checkpoints" / "last.pt"
        if last.exists():
            return int(last.resolve().stem.removeprefix("step-"))
        facts = self.writer.state.facts
        return facts.start_step if facts else 0

    # --- a stop ----------------------------------------------------------------------------

    def stop(self, now: bool = False, save: bool = True, again: bool = False) -> None:
        """End the run: all ranks at the same step with a checkpoint, or at once. Those that their
        launcher will start `again` end as well, and the run does not.

        The ranks' answers name the step that each is in; none goes past it until `StopAt`
        tells the furthest of them, which all can reach. While it waits for its turn or for hosts
        there are none to be heard.
        """
        if now or self.seen.queued or (self._waits and not self.links):
            self.seen.stopped_now = True
            self.seen.queued |= self.in_the_queue and not self.writer.state.facts
            self.end_now.set()
            return
        if not again:
            self.set_state(status="stopping")
        if not self.seen.stop_asked:
            self.seen.stop_asked, self._save = True, save
            patience = self.config.report.stop_timeout_s
            self._timer = asyncio.get_running_loop().call_later(patience, self._overdue)
            for link in self.links.values():
                link.send(Stop())

    def _told_to_end(self, link: Line) -> None:
        """By Slurm, with a signal, as where its job is cancelled or has to give way; a while later
        all there is killed. Often that is enough for a checkpoint.
        """
        if not self.links or self.trouble.is_set() or self.end_now.is_set():
            link.send(Stop(now=True))
        elif not self.seen.stop_asked:
            self._has_to_give_way()
            self.stop(again=True)

    def _all_have_left(self) -> None:
        """Those who stop though nobody here has asked them have been told by another."""
        stopped = any(finished.stopped for finished in self.seen.finished.values())
        if stopped and self.plan.scheduled and not self.seen.stop_asked:
            self._has_to_give_way()

    def _has_to_give_way(self) -> None:
        self.seen.stopped = "by Slurm"
        if self.launcher:
            self.launcher.send(Stop(again=True))

    def _agree(self) -> None:
        if len(self._answers) == self.plan.world_size:
            for link in self.links.values():
                link.send(StopAt(step=max(self._answers.values()) + 1, save=self._save))

    def _overdue(self) -> None:
        if self.seen.stop_asked and not self.all_finished.is_set():
            self.seen.stop_overdue = True
            self.end_now.set()

    # --- silence ---------------------------------------------------------------------------

    def look_for_stall(self) -> None:
        """Say once who is furthest behind, where no step has ended for long."""
        silence = time.monotonic() - self.progress
        training = bool(self.phases) and set(self.phases.values()) == {"training"}
        if training and not self.stalled and silence > self.config.report.stall_s:
            self.stalled = True
            steps = {rank: self.seen.steps.get(rank, 0) for rank in range(self.plan.world_size)}
            late = min(steps, key=lambda rank: steps[rank])
            behind = f"furthest behind is rank {late} ({words.positions(steps)})"
            if len(set(steps.values())) == 1:
                behind = f"all ranks are at step {steps[late]}"
            self.notice(f"no step has ended for {silence:.0f} s; {behind}")
