"""What Slurm prints of a job, and what a person is told of it. The texts are Slurm 22.05's."""

from __future__ import annotations

import pytest

from runners.errors import SlurmError
from runners.slurm import job as jobs
from runners.slurm.job import Seen, ending, forever, read
from runners.slurm.nodes import longest
from tests.runners.slurm.conftest import Plays

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
    """The text of a running job with other values."""
    shown = RUNNING
    for name, value in changes.items():
        start = shown.index(f" {name}=") + len(name) + 2
        shown = shown[:start] + value + shown[shown.index(" ", start) :]
    return shown


def seen(**changes: str) -> Seen:
    return read(text(**changes))


def test_a_running_job() -> None:
    found = seen()
    assert (found.partition, found.limit, found.over, found.waits) == (
        "main",
        "00:10:00",
        False,
        False,
    )
    job = found.job
    assert (job.id, job.state, job.reason, job.nodes) == ("2", "RUNNING", "", ["n1"])
    assert (job.starts, job.ends, job.restarts) == (1795347252.0, 1795347852.0, 1)


def test_a_waiting_job_has_no_nodes_and_no_end() -> None:
    found = seen(JobState="PENDING", Reason="Resources", NodeList="", StartTime="1795347999")
    assert found.waits
    assert (found.job.reason, found.job.nodes, found.job.ends) == ("Resources", [], None)
    assert found.job.starts == 1795347999.0


@pytest.mark.parametrize("unknown", ["Unknown", "N/A", "0"])
def test_a_time_that_slurm_does_not_know_is_missing(unknown: str) -> None:
    assert seen(StartTime=unknown, EndTime=unknown).job.starts is None
    assert seen(StartTime=unknown, EndTime=unknown).job.ends is None


def test_what_people_word_is_not_taken_for_what_slurm_says() -> None:
    shown = text(JobName="a b=c JobState=FAILED ExitCode=3:0")
    shown = shown.replace("WorkDir=/home/ann", "WorkDir=/a JobState=FAILED/b Restarts=9")
    shown += "Comment=x Partition=none "
    found = read(shown)
    assert (found.job.state, found.job.restarts) == ("RUNNING", 1)
    assert (found.code, found.partition) == (0, "main")


def test_what_is_no_job_is_told() -> None:
    with pytest.raises(SlurmError, match="scontrol tells nothing of the job: No jobs in the sys"):
        read("No jobs in the system")


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED"])
def test_a_job_that_may_go_on_is_not_over(state: str) -> None:
    assert not seen(JobState=state).over


@pytest.mark.parametrize(
    ("written", "state"),
    [("FAILED,COMPLETING", "COMPLETING"), ("COMPLETING", "COMPLETING"), ("FAILED", "FAILED")],
)
def test_a_job_that_is_still_ending_has_not_ended(written: str, state: str) -> None:
    found = seen(JobState=written)
    assert found.job.state == state
    assert found.over == (state == "FAILED")


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
            "Slurm could not begin job 2 on n1: its folder or log is out of reach there",
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
        ({"JobState": "PREEMPTED"}, "job 2 had to give way to another"),
        (
            {"JobState": "FAILED", "ExitCode": "143:0", "PreemptTime": "1795347300"},
            "job 2 had to give way to another",
        ),
        (  # the time before
            {"JobState": "FAILED", "ExitCode": "4:0", "PreemptTime": "1795347251"},
            "job 2 ended with exit code 4",
        ),
        (
            {"JobState": "OUT_OF_MEMORY", "ExitCode": "0:125"},
            "job 2 took more memory than it was given; set slurm.memory",
        ),
        ({"JobState": "UNKNOWN"}, "how job 2 ended is not known: Slurm has forgotten it"),
    ],
)
def test_the_end_of_a_job_in_a_sentence(changes: dict[str, str], sentence: str) -> None:
    assert seen(**changes).over
    assert ending(seen(**changes)) == sentence


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
    monkeypatch.setattr(jobs, "down", lambda nodes: down)
    assert ending(seen(JobState="NODE_FAIL", Reason="NodeDown", ExitCode="0:9")) == sentence


def test_a_job_that_waits_in_vain_says_why() -> None:
    waiting = seen(JobState="PENDING", Reason="PartitionNodeLimit", NodeList="")
    assert forever(waiting) == (
        "job 2 waits in vain: it asks for more nodes than partition main gives a job"
    )
    held = seen(JobState="PENDING", Reason="JobHeldUser", NodeList="")
    assert forever(held) == "job 2 waits in vain: somebody holds it: scontrol release 2"


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("PartitionConfig", "it asks for more than partition main has or gives a job"),
        ("AccountNotAllowed", "partition main does not take its account"),
        ("QOSMaxCpuPerJobLimit", "it asks for more CPUs than its quality of service gives a job"),
        ("QOSMaxGRESPerNode", "it asks for more GPUs than its quality of service gives a job"),
        ("AssocMaxWallDurationPerJobLimit", "it asks for more time than its account gives a job"),
        ("QOSMinGRES", "it asks for less than its quality of service wants of a job (QOSMinGRES)"),
    ],
)
def test_limits_of_the_job_itself_are_in_vain(reason: str, sentence: str) -> None:
    waiting = seen(JobState="PENDING", Reason=reason, NodeList="")
    assert forever(waiting) == f"job 2 waits in vain: {sentence}"


def test_too_much_time_is_told_with_what_there_is(plays: Plays) -> None:
    plays("scontrol", "echo 'PartitionName=main MaxNodes=UNLIMITED MaxTime=00:10:00 MinNodes=0'")
    longest.cache_clear()
    waiting = seen(
        JobState="PENDING", Reason="PartitionTimeLimit", NodeList="", TimeLimit="00:30:00"
    )
    asks = "it asks for 0:30:00, partition main gives a job 0:10:00 at most"
    assert forever(waiting) == f"job 2 waits in vain: {asks}"
    longest.cache_clear()
    plays("scontrol", "exit 1")
    asks = "it asks for 0:30:00, more than partition main gives a job"
    assert forever(waiting) == f"job 2 waits in vain: {asks}"


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
    assert forever(seen(JobState="PENDING", Reason=reason, NodeList="")) == ""
