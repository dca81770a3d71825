"""Launcher `slurm`: submits the job of a run from the login node and follows it to its end.

When this process is to end, or its supervisor is gone, it cancels the job first.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from distrain.runners.errors import SlurmError
from distrain.runners.launchers.slurm import commands
from distrain.runners.launchers.slurm.job_watch import (
    END_SIGNALS,
    ORPHANED,
    JobWatch,
    SupervisorRequests,
)
from distrain.runners.launchers.slurm.script import SCRIPT, batch_script, sbatch_options
from distrain.runners.launchers.supervisor_link import SupervisorLink
from distrain.runners.protocol.client import ServerAddresses
from distrain.runners.protocol.events import Job
from distrain.runners.records.job_status import REFUSED
from distrain.runners.records.reader import Record
from distrain.runners.system.processes import OWNER, die_with_parent

# Variables that are valid on the login node only.
LOGIN_NODE_ONLY = ("DISTRAIN_SUPERVISOR", OWNER)


def main() -> int:
    """Return 0 if the job completed, else 1."""
    # The watch waits for these signals. They must not interrupt a command of Slurm: it would be
    # unknown whether the job was submitted.
    signal.pthread_sigmask(signal.SIG_BLOCK, {*END_SIGNALS, ORPHANED})
    record = Record(Path(os.environ["DISTRAIN_RUN"]))
    requests = SupervisorRequests()
    with SupervisorLink(on_event=requests.receive) as link:
        die_with_parent(number=ORPHANED)
        try:
            return JobWatch(link, record, find_or_submit(record), requests).run()
        except SlurmError as error:
            print(error, flush=True)
            link.send(Job(time=time.time(), id="", state=REFUSED, ended=str(error)))
            return 1


def find_or_submit(record: Record) -> str:
    """Return the id of the run's job, which is submitted if it was not yet. Raises SlurmError."""
    plan = record.state.plan
    assert plan is not None
    known = record.state.job
    if known and known.id:  # of a launcher before this one
        return known.id
    script = record.dir / SCRIPT
    if script.exists() and (job := commands.find_submitted(script)):
        return job  # of a launcher that was killed before it could report the job
    addresses = ServerAddresses("", os.environ["DISTRAIN_SOCKET"])
    script.write_text(batch_script(record.config, plan, record.dir, addresses), "utf-8")
    passed_on = {name: value for name, value in os.environ.items() if name not in LOGIN_NODE_ONLY}
    return commands.submit(script, sbatch_options(record.config, plan, record.dir), passed_on)


if __name__ == "__main__":
    sys.exit(main())
