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
from runners.errors import ConfigError
from runners.events import Failure, Phase
from runners.processes import die_with_parent
from runners.record import Record
from runners.reporter import NullReporter, Reporter


def main() -> int:
    """Run one rank to its end; 0 when it left in order."""
    die_with_parent(os.getppid())
    rank = int(os.environ.get("RANK", "0"))
    record = Record(Path(os.environ["DISTRAIN_RUN"]))
    _log_to(record.dir / "logs" / f"rank-{rank}.log")
    plan = record.state.plan
    assert plan is not None
    device = plan.devices[int(os.environ.get("LOCAL_RANK", "0"))]
    with Reporter.from_env(_supervisor_is_gone, device.label, device.uuid) as reporter:
        reporter.say(Phase(time=time.time(), rank=rank, phase="loading"))
        try:
            _train(record, reporter)
        except KeyboardInterrupt:
            return 130
        except SystemExit as leaving:
            reporter.say(_failure(rank, leaving, reporter.step))
            raise
        except BaseException as error:
            reporter.say(_failure(rank, error, reporter.step))
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
    import torch

    from models.build import build_task
    from runners.loop import train
    from runners.training import Training
    from runners.world import joined

    config, plan = record.config, record.state.plan
    assert plan is not None
    if config.train.deterministic:
        torch.use_deterministic_algorithms(True)
    with joined(config, plan) as world:
        torch.manual_seed(config.train.seed)
        task = build_task(
            config.task,
            config.model,
            config.data,
            label_smoothing=config.train.label_smoothing,
            seed=config.train.seed,
            device=world.device,
        )
        # The same weights everywhere, but dropout and the like of its own on every rank.
        torch.manual_seed(config.train.seed + 1 + world.rank)
        training = Training(config, plan, world, task, reporter, record.dir)
        if world.leads:
            reporter.say(training.facts())
        train(training)


def _failure(rank: int, error: BaseException, step: int) -> Failure:
    from runners.world import looks_collateral

    usage = isinstance(error, ConfigError | TaskError)
    return Failure(
        time=time.time(),
        rank=rank,
        error=type(error).__name__,
        message=_sentence(error),
        step=step,
        traceback="" if usage else traceback.format_exc(),
        usage=usage,
        collateral=looks_collateral(error),
    )


def _sentence(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"left with exit code {error.code} before training had ended"
    return str(error) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
