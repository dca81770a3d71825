"""The process of a rank: connect to the supervisor, train, and report how it ended.

Torch is imported only once the supervisor knows this process, so that a death during the import
is noticed.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path

from distrain.models.errors import TaskError
from distrain.models.importing import make_importable, user_folders
from distrain.runners.errors import ConfigError
from distrain.runners.protocol.events import Failure, Phase
from distrain.runners.protocol.reporter import NullReporter, Reporter
from distrain.runners.records.reader import Record
from distrain.runners.system.devices import device_of_rank, identify
from distrain.runners.system.processes import (
    accept_sigterm_from_parent,
    die_with_parent,
    without_garbage_collection,
)
from distrain.runners.system.rank_identity import set_rank_variables
from distrain.runners.training.tap_files import TAP

MAX_MESSAGE = 4_000  # characters
MAX_TRACEBACK = 100_000  # characters


def main() -> int:
    """Run one rank to its end; return 0 if it ended without an error."""
    die_with_parent()
    set_rank_variables()
    rank = int(os.environ.get("RANK", "0"))
    record = Record(Path(os.environ["DISTRAIN_RUN"]))
    _redirect_output(record.dir / "logs" / f"rank-{rank}.log")
    plan = record.state.plan
    assert plan is not None
    if plan.scheduled:
        accept_sigterm_from_parent()
    device = identify(device_of_rank(plan.devices, int(os.environ.get("LOCAL_RANK", "0"))))
    with Reporter.from_env(_exit_without_supervisor, device.label, device.uuid) as reporter:
        reporter.send(Phase(time=time.time(), rank=rank, phase="loading"))
        try:
            _train(record, reporter)
        except BaseException as error:
            reporter.send(_make_failure(rank, error, reporter.step))
            if isinstance(error, SystemExit):
                raise
            traceback.print_exc()
            return 1
    return 0


def _redirect_output(path: Path) -> None:
    """Append all output of this process, its libraries and its children to a log file."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="replace")  # type: ignore[union-attr]


def _exit_without_supervisor() -> None:
    print("the supervisor has exited, so this rank exits too", file=sys.stderr)
    os._exit(1)


def _train(record: Record, reporter: Reporter | NullReporter) -> None:
    with without_garbage_collection():
        import torch

        from distrain.runners import strategies
        from distrain.runners.distributed.device import rank_device
        from distrain.runners.training.loop import train
        from distrain.runners.training.trainer import make_training

    config = record.config
    plan = record.state.plan
    assert plan is not None
    # Not before torch is imported, which needs none of the user's modules.
    make_importable(user_folders(config.code_dir))
    device = rank_device(plan, int(os.environ.get("LOCAL_RANK", "0")))
    torch.set_num_threads(plan.threads)
    with strategies.join(config, plan, device) as world:
        with without_garbage_collection():
            training = make_training(config, plan, world, reporter, record.dir)
            if TAP in os.environ:
                from distrain.runners.training.tap import attach

                attach(training, record.dir)
        if world.is_leader:
            reporter.send(training.facts())
        try:
            train(training)
        except BaseException:
            training.meter.flush_after_error()
            raise


def _make_failure(rank: int, error: BaseException, step: int) -> Failure:
    from distrain.runners.distributed.secondary_failures import is_secondary_failure

    is_users_mistake = isinstance(error, ConfigError | TaskError)
    message = _message_of(error)
    trace = "" if is_users_mistake else "".join(traceback.format_exception(error))
    return Failure(
        time=time.time(),
        rank=rank,
        error=_make_sendable(type(error).__name__, MAX_MESSAGE),
        message=_make_sendable(message, MAX_MESSAGE),
        step=step,
        traceback=_make_sendable(trace, MAX_TRACEBACK),
        usage=is_users_mistake,
        secondary=is_secondary_failure(error, message),
    )


def _message_of(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"exited with code {error.code} before training had ended"
    try:
        return str(error) or type(error).__name__
    except Exception:
        return f"{type(error).__name__}, whose message cannot be formatted"


def _make_sendable(text: str, limit: int) -> str:
    """Return valid UTF-8 of a bounded length; a text that is too long keeps its end."""
    clean = text.encode("utf-8", "backslashreplace").decode()
    return clean if len(clean) <= limit else "… " + clean[-limit:]


if __name__ == "__main__":
    sys.exit(main())
