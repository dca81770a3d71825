"""A rank's life: connect, set up, train, say how it ended. Torch is imported once the
supervisor knows of this process, so that a death during the import is noticed.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path

from models.errors import TaskError
from runners.devices import found_here, of_rank
from runners.errors import ConfigError
from runners.events import Failure, Phase
from runners.launchers.place import take_place
from runners.processes import die_with_parent, ended_by_parent_only, without_collecting
from runners.record import Record
from runners.reporter import NullReporter, Reporter
from runners.verification import TAP

MOST_OF_A_MESSAGE, MOST_OF_A_TRACEBACK = 4_000, 100_000  # characters


def main() -> int:
    """Run one rank to its end; 0 when it left in order."""
    die_with_parent()
    take_place()
    rank = int(os.environ.get("RANK", "0"))
    record = Record(Path(os.environ["DISTRAIN_RUN"]))
    _log_to(record.dir / "logs" / f"rank-{rank}.log")
    plan = record.state.plan
    assert plan is not None
    if plan.scheduled:
        ended_by_parent_only()
    device = found_here(of_rank(plan.devices, int(os.environ.get("LOCAL_RANK", "0"))))
    with Reporter.from_env(_supervisor_is_gone, device.label, device.uuid) as reporter:
        reporter.say(Phase(time=time.time(), rank=rank, phase="loading"))
        try:
            _train(record, reporter)
        except BaseException as error:
            reporter.say(_failure(rank, error, reporter.step))
            if isinstance(error, SystemExit):
                raise
            traceback.print_exc()
            return 1
    return 0


def _log_to(path: Path) -> None:
    """Everything that this process, its libraries and its children print goes to the log."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="replace")  # type: ignore[union-attr]


def _supervisor_is_gone() -> None:
    print("the supervisor is gone; this rank ends with it", file=sys.stderr)
    os._exit(1)


def _train(record: Record, reporter: Reporter | NullReporter) -> None:
    with without_collecting():
        from runners.loop import train
        from runners.training import make_training
        from runners.world import joined

    config, plan = record.config, record.state.plan
    assert plan is not None
    with joined(config, plan) as world:
        with without_collecting():
            training = make_training(config, plan, world, reporter, record.dir)
            if TAP in os.environ:
                from runners.verification.tap import attach

                attach(training, record.dir)
        if world.leads:
            reporter.say(training.facts())
        try:
            train(training)
        except BaseException:
            training.meter.give_up()
            raise


def _failure(rank: int, error: BaseException, step: int) -> Failure:
    from runners.world import looks_collateral

    usage, message = isinstance(error, ConfigError | TaskError), _sentence(error)
    return Failure(
        time=time.time(),
        rank=rank,
        error=_sendable(type(error).__name__, MOST_OF_A_MESSAGE),
        message=_sendable(message, MOST_OF_A_MESSAGE),
        step=step,
        traceback="" if usage else _sendable(_traceback(error), MOST_OF_A_TRACEBACK),
        usage=usage,
        collateral=looks_collateral(error, message),
    )


def _sentence(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"left with exit code {error.code} before training had ended"
    try:
        return str(error) or type(error).__name__
    except Exception:
        return f"{type(error).__name__}, which cannot be put into words"


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _sendable(text: str, most: int) -> str:
    """Valid UTF-8 of a bounded length; of too long a text the end tells more."""
    clean = text.encode("utf-8", "backslashreplace").decode()
    return clean if len(clean) <= most else "… " + clean[-most:]


if __name__ == "__main__":
    sys.exit(main())
