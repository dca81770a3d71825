"""What Slurm 22.05 prints about a job, and the sentences that people read about it."""

from __future__ import annotations

import pytest

from distrain.runners.errors import SlurmError
from distrain.runners.launchers.slurm import endings
from distrain.runners.launchers.slurm.endings import describe_end, why_never_starts
from distrain.runners.launchers.slurm.job import JobInfo, parse_job, query_job
from distrain.runners.launchers.slurm.nodes import max_time
from tests.unit.launchers.slurm.conftest import Plays

RUNNING = (
    "JobId=2 JobName=ddp-x7k2 UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A "
    "Priority=4294901758 Nice=0 Account=(null) QOS=(null) JobState=RUNNING Reason=None "
    "Dependency=(null) Requeue=1 Restarts=1 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:05 "
    "TimeLimit=00:10:00 TimeMin=N/A SubmitTime=1795347252 EligibleTime=1795347252 "
    "AccrueTime=1795347252 StartTime=1795347252 EndTime=1795347852 Deadline=N/A "
    "PreemptTime=None SuspendTime=None "
    "SecsPreSuspend=0 LastSchedEval=1795347252 Scheduler=Backfill Partition=main "
    "AllocNode:Sid=login:12190 ReqNodeList=(null) ExcNodeList=(null) NodeList=n1 BatchHost=n1 "
    "NumNodes=1 NumCPUs=8 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:* TRES=cpu=8,node=1,billing=8 "
    "Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* MinCPUsNode=1 MinMemoryNode=0 "
    "MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=NO Contiguous=0 "
    "Licenses=(null) Network=(null) Command=(null) WorkDir=/home/ann "
    "StdErr=/home/ann/log StdIn=/dev/null StdOut=/home/ann/log Power= "
)


def text(**changes: str) -> str:
    """Return what Slurm prints about a running job, with other values."""
    shown = RUNNING
    for name, value in changes.items():
        start = shown.index(f" {name}=") + len(name) + 2
        shown = shown[:start] + value + shown[shown.index(" ", start) :]
    return shown


def info(**changes: str) -> JobInfo:
    return parse_job(text(**changes))


def test_a_running_job() -> None:
    found = info()
    assert (found.partition, found.limit, found.is_over, found.is_waiting) == (
        "main",
        "00:10:00",
        False,
        False,
    )
    job = found.job
    assert (job.id, job.state, job.reason, job.nodes) == ("2", "RUNNING", "", ["n1"])
    assert (job.starts, job.ends, job.restarts) == (1795347252.0, 1795347852.0, 1)


def test_a_waiting_job_has_no_nodes_and_no_end() -> None:
    found = info(JobState="PENDING", Reason="Resources", NodeList="", StartTime="1795347999")
    assert found.is_waiting
    assert (found.job.reason, found.job.nodes, found.job.ends) == ("Resources", [], None)
    assert found.job.starts == 1795347999.0


@pytest.mark.parametrize("unknown", ["Unknown", "N/A", "0"])
def test_a_time_that_slurm_does_not_know_is_missing(unknown: str) -> None:
    assert info(StartTime=unknown, EndTime=unknown).job.starts is None
    assert info(StartTime=unknown, EndTime=unknown).job.ends is None


def test_names_and_paths_that_look_like_fields_are_ignored() -> None:
    shown = text(JobName="a b=c JobState=FAILED ExitCode=3:0")
    shown = shown.replace("WorkDir=/home/ann", "WorkDir=/a JobState=FAILED/b Restarts=9")
    shown += "Comment=x Partition=none "
    found = parse_job(shown)
    assert (found.job.state, found.job.restarts) == ("RUNNING", 1)
    assert (found.exit_code, found.partition) == (0, "main")


def test_output_without_a_job_is_an_error() -> None:
    with pytest.raises(SlurmError, match="scontrol shows no state of the job: No jobs in the sys"):
        parse_job("No jobs in the system")


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED"])
def test_a_job_that_may_continue_has_not_ended(state: str) -> None:
    assert not info(JobState=state).is_over


@pytest.mark.parametrize(
    ("written", "state"),
    [("FAILED,COMPLETING", "COMPLETING"), ("COMPLETING", "COMPLETING"), ("FAILED", "FAILED")],
)
def test_a_job_that_is_still_ending_has_not_ended(written: str, state: str) -> None:
    found = info(JobState=written)
    assert found.job.state == state
    assert found.is_over == (state == "FAILED")


@pytest.mark.parametrize(
    ("printed", "state"),
    [
        ("OUT_OF_MEMORY|0:125|1:00:00", "OUT_OF_MEMORY"),
        ("CANCELLED by 1000|0:0|1:00:00", "CANCELLED"),
        ("RUNNING|0:0|1:00:00", "UNKNOWN"),  # its end is missing there
        ("", "UNKNOWN"),
    ],
)
def test_a_job_that_slurm_no_longer_knows_has_ended(printed: str, state: str, plays: Plays) -> None:
    error = "slurm_load_jobs error: Invalid job id specified"
    plays("scontrol", f"echo '{error}' >&2; exit 1")
    plays("sacct", f"echo '{printed}'")
    found = query_job("2")
    assert (found.job.state, found.is_over) == (state, True)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"JobState": "COMPLETED"}, "job 2 completed"),
        (
            {"JobState": "FAILED", "Reason": "NonZeroExitCode", "ExitCode": "4:0"},
            "job 2 ended with exit code 4",
        ),
        (
            {"JobState": "FAILED", "Reason": "NonZeroExitCode", "ExitCode": "137:0"},
            "job 2 ended with exit code 137 (SIGKILL)",
        ),
        (
            {"JobState": "FAILED", "Reason": "JobLaunchFailure", "ExitCode": "0:9"},
            "the script of job 2 was killed by SIGKILL",
        ),
        (
            {"JobState": "FAILED", "Reason": "JobLaunchFailure", "ExitCode": "0:53"},
            "Slurm could not launch job 2 on n1: the run's folder or log is not accessible there",
        ),
        ({"JobState": "CANCELLED", "ExitCode": "0:9"}, "job 2 was cancelled outside distrain"),
        (
            {"JobState": "TIMEOUT", "Reason": "TimeLimit", "TimeLimit": "00:01:00"},
            "the time limit of job 2 was reached: 0:01:00",
        ),
        (
            {"JobState": "TIMEOUT", "Reason": "TimeLimit", "TimeLimit": "1-00:00:00"},
            "the time limit of job 2 was reached: 1-00:00:00",
        ),
        ({"JobState": "PREEMPTED"}, "job 2 was preempted by another job"),
        (
            {"JobState": "FAILED", "ExitCode": "143:0", "PreemptTime": "1795347300"},
            "job 2 was preempted by another job",
        ),
        (  # the time before
            {"JobState": "FAILED", "ExitCode": "4:0", "PreemptTime": "1795347251"},
            "job 2 ended with exit code 4",
        ),
        (
            {"JobState": "OUT_OF_MEMORY", "ExitCode": "0:125"},
            "job 2 exceeded its memory limit; increase slurm.memory",
        ),
        ({"JobState": "UNKNOWN"}, "it is unknown how job 2 ended: Slurm no longer knows the job"),
    ],
)
def test_the_end_of_a_job_in_a_sentence(changes: dict[str, str], sentence: str) -> None:
    assert info(**changes).is_over
    assert describe_end(info(**changes)) == sentence


@pytest.mark.parametrize(
    ("down", "sentence"),
    [
        (["n2"], "node n2 of job 2 failed"),
        (["n2", "n3"], "nodes n2, n3 of job 2 failed"),
        ([], "a node of job 2 failed"),
    ],
)
def test_the_node_that_failed_is_named(
    down: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "down_nodes", lambda nodes: down)
    assert describe_end(info(JobState="NODE_FAIL", Reason="NodeDown", ExitCode="0:9")) == sentence


def test_a_job_that_will_never_start_has_a_reason() -> None:
    waiting = info(JobState="PENDING", Reason="PartitionNodeLimit", NodeList="")
    assert why_never_starts(waiting) == (
        "job 2 will not start: it requests more nodes than partition main allows"
    )
    held = info(JobState="PENDING", Reason="JobHeldUser", NodeList="")
    assert why_never_starts(held) == "job 2 will not start: it is held: scontrol release 2"


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("PartitionConfig", "it requests more than partition main has or allows"),
        ("AccountNotAllowed", "partition main does not accept its account"),
        ("QOSMaxCpuPerJobLimit", "it requests more CPUs than its quality of service allows a job"),
        ("QOSMaxGRESPerNode", "it requests more GPUs than its quality of service allows a job"),
        ("AssocMaxWallDurationPerJobLimit", "it requests more time than its account allows a job"),
        (
            "QOSMinGRES",
            "it requests less than its quality of service requires of a job (QOSMinGRES)",
        ),
    ],
)
def test_limits_of_a_single_job_are_permanent(reason: str, sentence: str) -> None:
    waiting = info(JobState="PENDING", Reason=reason, NodeList="")
    assert why_never_starts(waiting) == f"job 2 will not start: {sentence}"


def test_the_sentence_on_a_time_limit_contains_the_limit(plays: Plays) -> None:
    plays("scontrol", "echo 'PartitionName=main MaxNodes=UNLIMITED MaxTime=00:10:00 MinNodes=0'")
    max_time.cache_clear()
    waiting = info(
        JobState="PENDING", Reason="PartitionTimeLimit", NodeList="", TimeLimit="00:30:00"
    )
    asks = "it requests 0:30:00, partition main allows 0:10:00 at most"
    assert why_never_starts(waiting) == f"job 2 will not start: {asks}"
    max_time.cache_clear()
    plays("scontrol", "exit 1")
    asks = "it requests 0:30:00, more than partition main allows"
    assert why_never_starts(waiting) == f"job 2 will not start: {asks}"


@pytest.mark.parametrize(
    "reason",
    [
        "Resources",
        "Priority",
        "BeginTime",
        "None",
        "AssocMaxJobsLimit",
        "AssocGrpCpuLimit",
        "QOSMaxCpuPerUserLimit",
        "QOSMaxJobsPerUserLimit",
        "MaxCpuPerAccount",
    ],
)
def test_a_job_that_only_has_to_wait_does_not(reason: str) -> None:
    assert why_never_starts(info(JobState="PENDING", Reason=reason, NodeList="")) == ""
