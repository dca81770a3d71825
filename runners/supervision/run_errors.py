"""The errors of failed runs: what failed, in one sentence, and which ranks it took along."""

from __future__ import annotations

from collections.abc import Iterable

from distrain.runners import formatting
from distrain.runners.protocol.events import Job, NonFinite
from distrain.runners.records.state import RunError
from distrain.runners.supervision.evidence import Evidence
from distrain.runners.system.limits import cpu_seconds

HANG = "Hang"
JOB_ENDED = "JobEnded"


def rank_error(evidence: Evidence, rank: int, suspects: Iterable[int] = ()) -> RunError:
    """Return the error of the rank that failed first; other suspects failed independently."""
    others = sorted(set(evidence.lost) - set(suspects) - {rank})
    if rank not in evidence.failures:
        return _silent_end(evidence, rank, others)
    failure = evidence.failures[rank][1]
    return RunError(
        rank=rank,
        type=failure.error,
        message=failure.message,
        traceback=failure.traceback,
        step=failure.step,
        secondary=others,
        usage=failure.usage,
    )


def _silent_end(evidence: Evidence, rank: int, others: list[int]) -> RunError:
    """Return the error of a rank that ended without reporting one."""
    code = evidence.exit_code(rank)
    step = evidence.steps.get(rank, 0)
    if evidence.is_script and not any(evidence.steps.values()):
        when = ""  # its steps are unknown
    elif step:
        when = f"after step {step:,}"
    elif any(evidence.steps.values()):  # it may have done steps that it could not report any more
        when = "before it reported a step"
    else:
        when = "before its first step"
    if code is None:
        kind = "Vanished"
        message = f"disconnected {when} without reporting an error"
    elif code >= 0:
        kind = "Exit"
        message = f"exited with code {code} {when} without reporting an error"
        if cause := evidence.last_words.get(rank):
            message += f"; its last output: {cause}"
    else:
        kind = formatting.signal_name(-code)
        message = f"killed by {kind} {when}".rstrip()
        if kind == "SIGKILL":
            message += f" ({_who_kills()})"
        elif cause := evidence.last_words.get(rank):
            message += f": {cause}"
    message = " ".join(message.split())
    return RunError(rank=rank, type=kind, message=message, step=step, secondary=others)


def _who_kills() -> str:
    limit = cpu_seconds()
    killers = "manually or by the OOM killer"
    return f"{killers}, or at the limit of {limit} s of CPU time, `ulimit -t`" if limit else killers


def job_ended(evidence: Evidence, job: Job) -> RunError:
    """Return the error of ranks that were ended with their job: none of them is to blame."""
    message = job.ended
    if any(evidence.steps.values()):
        message += f"; {positions(evidence)}"
    return RunError(rank=None, type=JOB_ENDED, message=message, secondary=evidence.lost)


def host_unreachable(evidence: Evidence) -> RunError:
    since = formatting.time_of_day(min(evidence.unreachable.values()))
    hosts = " and ".join(sorted(evidence.unreachable))
    verb = "has" if len(evidence.unreachable) == 1 else "have"
    message = (
        f"{hosts} {verb} not answered since {since} (network or power failure?); "
        f"{positions(evidence)}"
    )
    return RunError(rank=None, type="HostLost", message=message, secondary=evidence.lost)


def agent_lost(evidence: Evidence) -> RunError:
    first = min(evidence.lost_agents, key=lambda host: evidence.lost_agents[host])
    number = evidence.agent_signals.get(first)
    how = f"ended by {formatting.signal_name(number)}" if number else "killed or has failed"
    message = (
        f"{first} left the run: the process that starts its ranks was {how}; {positions(evidence)}"
    )
    return RunError(rank=None, type="HostLost", message=message, secondary=evidence.lost)


def hosts_missing(evidence: Evidence) -> RunError:
    message = f"{evidence.missing} did not join within dist.join_timeout_s; nothing was trained"
    return RunError(rank=None, type="HostMissing", message=message)


def hang(evidence: Evidence, absent: list[int]) -> RunError:
    names = " and ".join(f"rank {rank}" for rank in absent)
    verb = "is" if len(absent) == 1 else "are"
    first_failure = evidence.first_report
    left = {rank for rank, when in evidence.disconnected.items() if when < first_failure}
    if {*left, *evidence.finished}.issuperset(absent):
        verb = f"{'has' if len(absent) == 1 else 'have'} ended and {verb}"
    message = (
        f"{names} {verb} absent from a collective in which the others wait; {positions(evidence)}"
    )
    if evidence.failures and not any(evidence.steps.values()):  # they may not reach each other
        rank, (_, first) = min(evidence.failures.items(), key=lambda each: each[1][0])
        line, _, _ = first.message.strip().partition("\n")
        message += f"; rank {rank}: {line}"
    return RunError(
        rank=absent[0],
        type=HANG,
        message=message,
        step=evidence.steps.get(absent[0], 0),
        secondary=sorted(evidence.reported),
        traceback=_first_wait(evidence),
    )


def mismatch(evidence: Evidence) -> RunError:
    """Return the error of ranks that waited for each other: none of them alone is to blame."""
    message = f"{evidence.mismatch}; {positions(evidence)}"
    return RunError(rank=None, type=HANG, message=message, traceback=_first_wait(evidence))


def _first_wait(evidence: Evidence) -> str:
    """Return the traceback of the first rank that has reported where it waited."""
    tracebacks = (
        f"rank {rank} waited here:\n{failure.traceback}"
        for rank, (_, failure) in evidence.failures.items()
        if failure.traceback
    )
    return next(tracebacks, "")


def launcher_failed(evidence: Evidence) -> RunError:
    code = -evidence.launcher_signal or evidence.launcher_code or 0
    log = evidence.launcher_log
    lines = log.strip().splitlines()
    last_line = lines[-1].strip() if lines else ""
    if code < 0:
        message = f"the launcher was killed by {formatting.signal_name(-code)} while its ranks ran"
    elif evidence.job and last_line:  # the launcher of a job prints a sentence for people
        message = last_line
    else:
        output = f"its last output: {last_line}" if last_line else "it printed nothing"
        message = f"the launcher exited with code {code} before its ranks did; {output}"
    return RunError(rank=None, type="LauncherFailed", message=message, traceback=log)


def nonfinite_loss(event: NonFinite) -> RunError:
    message = (
        f"the loss became {event.loss} at step {event.step}; try a lower learning rate, warm-up "
        'or clip_norm, or set train.on_nan = "continue" to train on'
    )
    return RunError(rank=event.rank, type="NonFiniteLoss", message=message, step=event.step)


def positions(evidence: Evidence) -> str:
    if evidence.is_script:  # where steps that were not reported are unknown
        steps = dict(sorted(evidence.steps.items()))
    else:
        steps = {rank: evidence.steps.get(rank, 0) for rank in range(evidence.world_size)}
    return f"last seen: {formatting.rank_steps(steps)}" if steps else "no step was reported"
