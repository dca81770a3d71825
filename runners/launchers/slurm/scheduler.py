"""Slurm as the batch scheduler of a run, from the supervisor's side."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from distrain.runners.config.launch_sections import SlurmConfig
from distrain.runners.errors import DistrainError, SlurmError
from distrain.runners.launchers.slurm import commands, nodes
from distrain.runners.launchers.slurm.script import SCRIPT
from distrain.runners.protocol.events import Job
from distrain.runners.records.job_status import REFUSED


class SlurmScheduler:
    """Implements `BatchScheduler` with Slurm's commands."""

    name = "Slurm"
    # The launcher cancels the job and waits for its end; Slurm may be slow to answer both times.
    end_launcher = ((signal.SIGTERM, 180.0), (signal.SIGKILL, 3.0))
    # The sbatch of a launcher that was killed may be about to queue the job.
    finish_commands = ((signal.SIGCONT, commands.TIMEOUT_S), (signal.SIGKILL, 3.0))

    def __init__(self, config: SlurmConfig) -> None:
        self._config = config

    @property
    def requeues(self) -> bool:
        return self._config.requeue

    @property
    def poll_s(self) -> float:
        return self._config.poll_s

    @property
    def reports_by_files(self) -> bool:
        return self._config.report == "files"

    def report_address(self, warn: Callable[[str], object]) -> str:
        if self.reports_by_files:
            return ""
        try:
            return nodes.own_address(self._config.partition)
        except DistrainError as error:
            if self._config.report == "tcp" or isinstance(error, SlurmError):
                raise
            warn(f"the address of this host for the nodes is unknown: {error}")
            return ""

    def node_address(self) -> str:
        return nodes.address_of_node(os.environ["SLURMD_NODENAME"])

    def cancel_abandoned(self, folder: Path, job: Job | None) -> Job:
        job = job or Job(time=time.time(), id="", state=REFUSED)
        try:
            if job_id := job.id or commands.find_submitted(folder / SCRIPT):
                commands.cancel(job_id)
                job = structs.replace(job, id=job_id, state="CANCELLED")
                consequence = f"job {job_id} was cancelled"
            else:
                consequence = "it had not submitted a job"
        except SlurmError as error:
            consequence = f"its job may still run: {error}"
        text = f"the launcher was killed; {consequence}"
        return structs.replace(job, time=time.time(), ended=text)
