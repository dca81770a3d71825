"""What the parts of a supervisor share of the run that it records."""

from __future__ import annotations

import time
from typing import Any, Literal, Protocol

from msgspec import structs

from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.launchers.batch_scheduler import BatchScheduler
from distrain.runners.protocol.events import Notice
from distrain.runners.records import job_status
from distrain.runners.records.journal import JournalWriter
from distrain.runners.records.lineage import find_previous
from distrain.runners.records.writer import RecordWriter
from distrain.runners.supervision.connection import Connection
from distrain.runners.supervision.evidence import Evidence, RunConditions
from distrain.runners.supervision.membership import Membership
from distrain.runners.supervision.rank_connections import RankConnections
from distrain.runners.supervision.script_checks import ScriptChecks
from distrain.runners.supervision.script_evaluations import ScriptEvaluations
from distrain.runners.supervision.stall_watch import StallWatch
from distrain.runners.supervision.state_writer import SteadyTime

MAX_JOINED = 65_536  # ranks that a program may start by itself
STARTERS = ("spawn", "torchrun", "horovodrun")  # launchers that are the parents of all ranks


class StateSetter(Protocol):
    def __call__(self, **changes: Any) -> object: ...


class LiveRun:
    """A run while it is recorded: its record, its peers, and what was observed of it.

    `evidence` is what the outcome is decided from; `conditions` are set when the supervisor has to
    act. `set_state` changes run.json.
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
        self.ranks = RankConnections(host)
        previous = find_previous(writer.dir) if plan.spread and config.is_script else None
        self.membership = Membership(
            writer.state.run_id,
            config,
            plan,
            host,
            self._save_hosts,
            previous.name if previous else "",
        )
        self.conditions = RunConditions()
        self.evidence = Evidence(
            world_size=plan.world_size,
            is_script=config.is_script,
            watchdog_aborts=plan.backend in ("nccl", "horovod"),
            launcher_is_rank=config.launcher == "inline",
            reports_exits=config.launcher in STARTERS and config.dist.nodes == 1,
            queued=writer.state.status == "queued",
        )
        self.stall_watch = StallWatch(self.evidence, config.report.stall_s)
        self.script_evaluations = ScriptEvaluations(self.evidence)
        self.script_checks = ScriptChecks(self.evidence)
        self.is_replaying = False  # a journal, which has its notices already
        self._clock = SteadyTime()

    @property
    def may_restart(self) -> bool:
        """Whether torchrun or the scheduler may start the ranks again.

        The elastic agent of a host reports how ranks failed only once it does not restart them.
        The agents of other hosts do not notice that, and their ranks would wait for those.
        """
        if self.scheduler is not None:
            return True
        has_given_up = any(exited.code for exited in self.evidence.exits.values())
        return self.config.dist.max_restarts > 0 and not has_given_up

    @property
    def is_requeued_by_scheduler(self) -> bool:
        """Whether the scheduler starts the job again where it has ended the ranks."""
        return self.scheduler is not None and self.scheduler.requeues

    @property
    def ends_by_itself(self) -> bool:
        """Whether the launcher waits for all ranks of a script, and ends them."""
        is_local = self.config.launcher in ("inline", "torchrun") and not self.plan.spread
        return self.config.is_script and is_local

    @property
    def is_complete(self) -> bool:
        """Whether every rank has done all its steps, and was not asked to stop before."""
        was_stopped = self.evidence.any_stopped or self.evidence.interrupted
        return self.conditions.all_finished.is_set() and not was_stopped

    @property
    def is_job_queued(self) -> bool:
        """Whether the ranks are a scheduler's job that waits for its start."""
        return job_status.is_queued(self.evidence.job)

    @property
    def is_waiting(self) -> bool:
        """Whether ranks cannot begin yet: their job is queued, or hosts have still to join."""
        waits_for_hosts = self.scheduler is None and bool(self.membership.missing)
        return self.is_job_queued or waits_for_hosts

    @property
    def has_begun(self) -> bool:
        """Whether its ranks have been started, as far as this process knows.

        The ranks of a job may report in its journal, and other processes of a program that distrain
        has not started may come at any time.
        """
        is_known = self.scheduler is None or self.ranks.any_has_greeted
        return is_known and not (self.is_waiting or self.plan.observed)

    @property
    def lingering(self) -> set[int]:
        """The ranks that have finished or failed, but have not exited yet.

        Those that the program has started may wait until the record is complete.
        """
        if self.plan.observed:
            return set()
        ended = {*self.evidence.finished, *self.evidence.failures} - self.ranks.joined.keys()
        return ended & {*self.ranks.by_rank, *self.ranks.leaving}

    @property
    def is_stopping(self) -> bool:
        """Whether somebody has asked the run to end, not only its ranks to be restarted."""
        return self.writer.state.status == "stopping"

    @property
    def is_out_of_time(self) -> bool:
        """Whether `train.max_time_s` has passed since the training began."""
        limit, facts = self.config.train.max_time_s, self.writer.state.facts
        return limit is not None and facts is not None and self._clock.now() >= facts.time + limit

    @property
    def absent_ranks(self) -> list[int]:
        """The ranks that have never connected in this attempt."""
        return [r for r in range(self.plan.world_size) if not self.ranks.has_greeted(r)]

    def notice(self, text: str, level: Literal["info", "warning"] = "warning") -> None:
        """Add a notice to the record."""
        if not self.is_replaying:
            self.writer.add(Notice(time=time.time(), text=text, level=level))

    def grow(self, world_size: int) -> None:
        """Add the ranks that the program of a run with a single rank has started itself."""
        is_single = self.config.is_script and self.config.launcher == "inline"
        if is_single and self.plan.world_size == 1 < world_size <= MAX_JOINED:
            self.plan = structs.replace(self.plan, world_size=world_size)
            self.evidence.world_size = world_size
            self.set_state(plan=self.plan)
            self.stall_watch.restart()  # the program may have started them late

    def _save_hosts(self) -> None:
        self.set_state(hosts=self.membership.hosts)
