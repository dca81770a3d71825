"""Why a run ended: the first failing rank is the headline, the others are its collateral."""

from __future__ import annotations

import signal

import msgspec

from runners import words
from runners.events import Exited, Failure, Finished, Job, NonFinite
from runners.state import RunError, Status

HANG = "Hang"
JOB = "JobEnded"
AT_ONCE_S = 0.02  # sooner than any launcher can react to a failure


class Evidence(msgspec.Struct, kw_only=True):
    """What the supervisor saw; times are those of arrival here, by one clock (seconds).

    `hosts` are those of the ranks, where they are several; `silent` ones answer no more since then
    (Unix seconds); `deserted` have lost what starts their ranks; `missing` names who never came.
    """

    world_size: int
    aborts: bool = False
    finished: dict[int, Finished] = {}
    failures: dict[int, tuple[float, Failure]] = {}
    vanished: dict[int, float] = {}
    exits: dict[int, Exited] = {}
    steps: dict[int, int] = {}
    nonfinite: NonFinite | None = None
    launcher_code: int | None = None
    launcher_log: str = ""
    launcher_killed: bool = False
    hosts: dict[int, str] = {}
    deserted: dict[str, float] = {}
    silent: dict[str, float] = {}
    missing: str = ""
    job: Job | None = None
    queued: bool = False
    stop_asked: bool = False
    stopped: str = "on request"
    stopped_now: bool = False
    stop_overdue: bool = False


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    status: Status
    reason: str
    error: RunError | None = None


def judge(seen: Evidence) -> Verdict:
    """completed, stopped or failed, with one sentence and the headline error."""
    if seen.queued:
        return Verdict(status="stopped", reason="taken out of the queue on request, never started")
    if seen.nonfinite:
        return _failed(_not_a_number(seen.nonfinite))
    complete = len(seen.finished) == seen.world_size
    if complete and any(finished.stopped for finished in seen.finished.values()):
        step = max(finished.step for finished in seen.finished.values())
        why = f": {seen.job.ended}" if seen.job and _was_ended(seen.job) else ""
        return Verdict(status="stopped", reason=f"stopped {seen.stopped} after step {step:,}{why}")
    if complete:
        return Verdict(status="completed", reason="all steps done")
    if seen.missing:
        return _failed(_not_come(seen))
    if seen.stopped_now:
        return Verdict(status="stopped", reason="stopped at once on request, without a checkpoint")
    if seen.stop_overdue:
        return Verdict(
            status="stopped",
            reason=f"the graceful stop took too long and was forced; {_positions(seen)}",
        )
    error = _headline(seen)
    host = "" if error.rank is None else seen.hosts.get(error.rank, "")
    return _failed(msgspec.structs.replace(error, host=host))


def broken(error: Exception) -> Verdict:
    """The supervisor itself failed: our bug, said as such."""
    message = f"the supervisor failed ({error}); see logs/supervisor.log"
    return _failed(RunError(rank=None, type=type(error).__name__, message=message))


def _failed(error: RunError) -> Verdict:
    # Who hangs is the subject of the sentence.
    where = "" if error.rank is None or error.type == HANG else f"{error.who}: "
    return Verdict(status="failed", reason=where + error.message, error=error)


def _headline(seen: Evidence) -> RunError:
    if seen.job and seen.job.ended and seen.job.state not in ("COMPLETED", "FAILED"):
        return _job_ended(seen, seen.job)
    suspects = _suspects(seen)
    if all(kind > 0 for kind, _ in suspects.values()):
        if seen.silent:
            return _cut_off(seen)
        if _left_first(seen):
            return _left(seen)
    if suspects:
        first = min(suspects, key=lambda rank: suspects[rank])
    elif seen.launcher_killed and _noticed(seen):  # by ranks of other hosts: its own die with it
        return _launcher_failed(seen)
    elif absent := _absent(seen):
        return _hung(seen, absent)
    elif noticed := _noticed(seen):
        first = min(noticed, key=lambda rank: noticed[rank])
    elif died := _died_unheard(seen):
        first = min(died, key=lambda rank: seen.exits[rank].time)
    else:
        return _launcher_failed(seen)
    others = sorted((seen.failures.keys() | seen.vanished.keys()) - suspects.keys() - {first})
    if first not in seen.failures:
        return _vanished(seen, first, others)
    failure = seen.failures[first][1]
    return RunError(
        rank=first,
        type=failure.error,
        message=failure.message,
        traceback=failure.traceback,
        step=failure.step,
        collateral=others,
        usage=failure.usage,
    )


def _suspects(seen: Evidence) -> dict[int, tuple[int, float]]:
    """Ranks that did not die of another's death; the least value is the culprit.

    A launcher ends the others by SIGTERM once one has failed, so a rank that went away later
    than the first failure is suspect only where its exit code says otherwise. The ranks of a
    launcher that was killed die with it, and nobody is left to say how.
    """
    suspects: dict[int, tuple[int, float]] = {}
    for rank, (when, failure) in seen.failures.items():
        if failure.usage:  # every rank refuses the same config: the lowest speaks for all
            suspects[rank] = (-1, rank)
        elif not failure.collateral:
            suspects[rank] = (0, when)
    aborted = _aborted(seen)
    first_failure = min(_noticed(seen).values(), default=float("inf"))
    for rank, when in seen.vanished.items():
        code = _code(seen, rank)
        if rank in aborted:
            continue
        if code not in (None, 0, -signal.SIGTERM):
            suspects[rank] = (0, when)
        elif when <= first_failure + AT_ONCE_S and not (code is None and seen.launcher_killed):
            suspects[rank] = (1, when)
    return suspects


def _aborted(seen: Evidence) -> set[int]:
    """Ranks that a watchdog (NCCL's, Horovod's) ended with SIGABRT, as when another is absent."""
    return {rank for rank in seen.vanished if seen.aborts and _code(seen, rank) == -signal.SIGABRT}


def _died_unheard(seen: Evidence) -> list[int]:
    """Ranks that ended by themselves before a word; `inline` has a rank for a launcher."""
    return [
        rank
        for rank, exited in seen.exits.items()
        if exited.code not in (0, -signal.SIGTERM, seen.launcher_code)
    ]


def _code(seen: Evidence, rank: int) -> int | None:
    return seen.exits[rank].code if rank in seen.exits else None


def _vanished(seen: Evidence, rank: int, others: list[int]) -> RunError:
    code = _code(seen, rank)
    step = seen.steps.get(rank, 0)
    # What it had not yet reported is gone with it.
    unheard = "before it reported a step" if any(seen.steps.values()) else "before its first step"
    when = f"after step {step:,}" if step else unheard
    if code is not None and code < 0:
        name = words.signal_name(-code)
        kind, message = name, f"killed by {name} {when}"
        if name == "SIGKILL":
            message += " (by hand, or by the system when memory ran out)"
    elif code is not None:
        kind, message = "Exit", f"left with exit code {code} {when} and said nothing"
    else:
        kind, message = "Vanished", f"went away {when} and said nothing"
    return RunError(rank=rank, type=kind, message=message, step=step, collateral=others)


def _absent(seen: Evidence) -> list[int]:
    waited = _noticed(seen)
    return [rank for rank in range(seen.world_size) if rank not in waited] if waited else []


def _noticed(seen: Evidence) -> dict[int, float]:
    """Ranks that say what has befallen them, or that a watchdog ended; and when."""
    failed = {rank: when for rank, (when, _) in seen.failures.items()}
    return {rank: seen.vanished[rank] for rank in _aborted(seen)} | failed


def _job_ended(seen: Evidence, job: Job) -> RunError:
    """Slurm, or whoever told it to, ended the ranks: none of them is to blame."""
    others = sorted(seen.failures.keys() | seen.vanished.keys())
    where = f"; {_positions(seen)}" if any(seen.steps.values()) else ""
    return RunError(rank=None, type=JOB, message=job.ended + where, collateral=others)


def _cut_off(seen: Evidence) -> RunError:
    """Ranks of a host that answers no more vanish without a word, and others wait for them."""
    since = words.clock(min(seen.silent.values()))
    names = " and ".join(sorted(seen.silent))
    verb = "has" if len(seen.silent) == 1 else "have"
    return RunError(
        rank=None,
        type="HostLost",
        message=f"{names} {verb} not answered since {since}: cut off, or without power; "
        + _positions(seen),
        collateral=sorted(seen.vanished.keys() | seen.failures.keys()),
    )


def _was_ended(job: Job) -> bool:
    """Whether Slurm or somebody else ended it, and not its script itself."""
    return bool(job.ended) and job.state != "COMPLETED"


def _left_first(seen: Evidence) -> bool:
    """Whether a host had lost what starts its ranks before any rank failed. Where that was the
    launcher, its end tells more.
    """
    if not seen.deserted or seen.launcher_killed:
        return False
    first_failure = min(_noticed(seen).values(), default=float("inf"))
    return min(seen.deserted.values()) <= first_failure + AT_ONCE_S


def _left(seen: Evidence) -> RunError:
    first = min(seen.deserted, key=lambda host: seen.deserted[host])
    return RunError(
        rank=None,
        type="HostLost",
        message=f"{first} left the run: what starts and ends the ranks there was killed; "
        + _positions(seen),
        collateral=sorted(seen.vanished.keys() | seen.failures.keys()),
    )


def _not_come(seen: Evidence) -> RunError:
    message = f"{seen.missing} did not join within dist.join_timeout_s; nothing was trained"
    return RunError(rank=None, type="HostMissing", message=message)


def _hung(seen: Evidence, absent: list[int]) -> RunError:
    names = " and ".join(f"rank {rank}" for rank in absent)
    verb = "is" if len(absent) == 1 else "are"
    return RunError(
        rank=absent[0],
        type=HANG,
        message=f"{names} {verb} absent from a collective the others wait in; {_positions(seen)}",
        step=seen.steps.get(absent[0], 0),
        collateral=sorted(_noticed(seen)),
        traceback=next(
            (
                f"rank {rank} waited here:\n{failure.traceback}"
                for rank, (_, failure) in seen.failures.items()
                if failure.traceback
            ),
            "",
        ),
    )


def _launcher_failed(seen: Evidence) -> RunError:
    code = seen.launcher_code or 0
    if code < 0:
        text = f"the launcher was killed by {words.signal_name(-code)} while its ranks ran"
    else:
        last = seen.launcher_log.strip().splitlines()[-1:]
        said = f"it last printed: {last[0].strip()}" if last else "it printed nothing"
        text = f"the launcher ended with code {code} before its ranks did; {said}"
        if seen.job and last:  # which is a sentence of ours
            text = last[0].strip()
    return RunError(rank=None, type="LauncherFailed", message=text, traceback=seen.launcher_log)


def _not_a_number(event: NonFinite) -> RunError:
    return RunError(
        rank=event.rank,
        type="NonFiniteLoss",
        message=f"the loss became {event.loss} at step {event.step}; try a lower rate, warm-up or "
        'clip_norm, or go on with train.on_nan = "continue"',
        step=event.step,
    )


def _positions(seen: Evidence) -> str:
    steps = {rank: seen.steps.get(rank, 0) for rank in range(seen.world_size)}
    return f"last seen: {words.positions(steps)}"
