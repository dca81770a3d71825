"""What the supervisor needs of a batch scheduler, whichever it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from signal import Signals
from typing import Protocol

from distrain.runners.config.schema import RunConfig
from distrain.runners.protocol.events import Job


class BatchScheduler(Protocol):
    """The batch scheduler that runs the ranks of a run as its job.

    The launcher submits the job and follows it; what is here is for when the launcher has to end
    or was killed, and for the address at which ranks report.
    """

    @property
    def name(self) -> str:
        """The scheduler's name in messages."""

    @property
    def requeues(self) -> bool:
        """Whether the job is queued again when its time is up or a node fails."""

    @property
    def poll_s(self) -> float:
        """Seconds between two queries of the job's state."""

    @property
    def reports_by_files(self) -> bool:
        """Whether the job keeps a journal in any case, even if its nodes reach this host."""

    @property
    def end_launcher(self) -> Sequence[tuple[Signals, float]]:
        """Signals that end the launcher, with the seconds in which it cancels its job."""

    @property
    def finish_commands(self) -> Sequence[tuple[Signals, float]]:
        """Signals that end commands of a killed launcher, with the seconds they may take."""

    def report_address(self, warn: Callable[[str], object]) -> str:
        """Return the address of this host for the job's nodes.

        Empty where the job keeps a journal instead; `warn` is called with the reason if the
        address could not be determined. Raises DistrainError.
        """

    def node_address(self) -> str:
        """Return the address of the node on which this process runs. Raises DistrainError."""

    def cancel_abandoned(self, folder: Path, job: Job | None) -> Job:
        """Cancel the job of the run in `folder`, whose launcher was killed.

        `job` is its last known state, None where it is not known whether it was submitted.
        Returns its new state, whose `ended` says what was done.
        """


def batch_scheduler(config: RunConfig) -> BatchScheduler | None:
    """Return the scheduler of a config; None where no scheduler runs the ranks."""
    if config.launcher != "slurm":
        return None
    from distrain.runners.launchers.slurm.scheduler import SlurmScheduler

    return SlurmScheduler(config.slurm)
