"""Sentences on a job of Slurm: how it ended, and why it will never start."""

from __future__ import annotations

import re

from distrain.runners import formatting
from distrain.runners.errors import SlurmError
from distrain.runners.launchers.slurm.job import JobInfo
from distrain.runners.launchers.slurm.nodes import down_nodes, max_time

# Reasons of waiting jobs that do not pass with time, of Slurm 22 to 24.
PERMANENT_REASONS = {
    "AccountNotAllowed": "partition {partition} does not accept its account",
    "BadConstraints": "no node satisfies its constraints",
    "DependencyNeverSatisfied": "its dependency can never be satisfied",
    "InvalidAccount": "its account is invalid",
    "InvalidQOS": "its quality of service is invalid",
    "JobHeldAdmin": "the administrator holds it",
    "JobHeldUser": "it is held: scontrol release {job.id}",
    "JobHoldMaxRequeue": "it was requeued too often and is held: scontrol release {job.id}",
    "MaxMemPerLimit": "it requests more memory than a job may have",
    "PartitionConfig": "it requests more than partition {partition} has or allows",
    "PartitionDown": "partition {partition} is down",
    "PartitionInactive": "partition {partition} is inactive",
    "PartitionNodeLimit": "it requests more nodes than partition {partition} allows",
    "PartitionTimeLimit": "it requests {time}, {max_time}",
    "QOSNotAllowed": "partition {partition} does not accept its quality of service",
    "ReservationDeleted": "its reservation was deleted",
    "job_requeued_in_held_state": "it was requeued and is held: scontrol release {job.id}",
    "launch_failed_requeued_held": "it failed to launch and is held: scontrol release {job.id}",
}
# Limits of a single job; those of all jobs of a user or an account only make it wait.
_JOB_LIMIT = re.compile("(Assoc|QOS)(Max|Min)([A-Za-z]+?)(Per(Job|Node)(Limit)?)?")
_LIMIT_OWNERS = {"Assoc": "its account", "QOS": "its quality of service"}
_RESOURCES = {
    "Cpu": "CPUs",
    "CpuMinutes": "CPU minutes",
    "GRES": "GPUs",
    "GRESMinutes": "GPU minutes",
    "Mem": "memory",
    "Memory": "memory",
    "Node": "nodes",
    "WallDuration": "time",
}


def why_never_starts(info: JobInfo) -> str:
    """Return why a waiting job will not start however long it waits; empty where it may."""
    if not info.is_waiting:
        return ""
    reason = info.job.reason
    template = PERMANENT_REASONS.get(reason) or _exceeded_limit(reason)
    if not template:
        return ""
    limit = _partition_limit(info.partition) if reason == "PartitionTimeLimit" else ""
    sentence = template.format(
        job=info.job,
        partition=info.partition,
        time=info.limit.removeprefix("0"),
        max_time=limit,
    )
    return f"job {info.job.id} will not start: {sentence}"


def _exceeded_limit(reason: str) -> str:
    """Return the sentence of a limit that the job exceeds by itself; empty for other reasons."""
    found = _JOB_LIMIT.fullmatch(reason)
    if found is None:
        return ""
    owner_name = found[1]
    bound = found[2]
    resource_name = found[3]
    per_job = found[4]
    owner = _LIMIT_OWNERS[owner_name]
    if bound == "Min":
        return f"it requests less than {owner} requires of a job ({reason})"
    if not per_job:
        return ""
    resource = _RESOURCES.get(resource_name, resource_name)
    return f"it requests more {resource} than {owner} allows a job"


def _partition_limit(partition: str) -> str:
    try:
        limit = max_time(partition).removeprefix("0")
    except SlurmError:
        return f"more than partition {partition} allows"
    return f"partition {partition} allows {limit} at most"


def describe_end(info: JobInfo) -> str:
    """Return how a job that is over ended, in a sentence. Raises SlurmError."""
    job = info.job
    match job.state:
        case "COMPLETED":
            return f"job {job.id} completed"
        case "CANCELLED":
            return f"job {job.id} was cancelled outside distrain"
        case "TIMEOUT":
            limit = f": {info.limit.removeprefix('0')}" if info.limit else ""
            return f"the time limit of job {job.id} was reached{limit}"
        case "NODE_FAIL":
            return f"{_failed_nodes(job.nodes)} of job {job.id} failed"
        case "PREEMPTED" | "FAILED" if info.preempted or job.state == "PREEMPTED":
            return f"job {job.id} was preempted by another job"
        case "OUT_OF_MEMORY":
            return f"job {job.id} exceeded its memory limit; increase slurm.memory"
        case "DEADLINE":
            return f"job {job.id} could not end before its deadline"
        case "BOOT_FAIL":
            return f"the nodes of job {job.id} failed to boot"
        case "FAILED":
            return _describe_failure(info)
    return f"it is unknown how job {job.id} ended: Slurm no longer knows the job"


def _failed_nodes(nodes: list[str]) -> str:
    down = down_nodes(nodes)
    if not down:
        return "a node"
    return f"node {down[0]}" if len(down) == 1 else f"nodes {', '.join(down)}"


def _describe_failure(info: JobInfo) -> str:
    job = info.job
    if job.reason == "JobLaunchFailure" and info.signal != 9:
        where = f" on {job.nodes[0]}" if job.nodes else ""
        problem = "the run's folder or log is not accessible there"
        return f"Slurm could not launch job {job.id}{where}: {problem}"
    if info.signal:
        return f"the script of job {job.id} was killed by {formatting.signal_name(info.signal)}"
    text = f"job {job.id} ended with exit code {info.exit_code}"
    if info.exit_code > 128:
        text += f" ({formatting.signal_name(info.exit_code - 128)})"
    return text
