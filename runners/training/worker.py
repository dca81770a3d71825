"""The process of a rank: connect to the supervisor, train, and report how it ended.

Torch is imported only once the supervisor knows this process, so that a death during the import
is noticed.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from functools import partial
from pathlib import Path

from distrain.models.errors import TaskError
from distrain.models.importing import make_importable, user_folders
from distrain.runners.errors import ConfigError
from distrain.runners.instrumentation.rank_process import (
    call,
    exit_without_supervisor,
    make_failure,
    redirect_output,
    report_no_log,
)
from distrain.runners.protocol.events import Phase
from distrain.runners.protocol.reporter import NullReporter, Reporter
from distrain.runners.records.reader import Record
from distrain.runners.system.devices import device_of_rank, identify
from distrain.runners.system.processes import (
    accept_sigterm_from_parent,
    die_with_parent,
    ignore_user_signals,
    without_garbage_collection,
)
from distrain.runners.system.rank_identity import set_rank_variables
from distrain.runners.system.scratch import use_scratch_folder
from distrain.runners.training.compile_cache import use_private_cache
from distrain.runners.training.tap_files import TAP, parse_steps


def main() -> int:
    """Run one rank to its end; return 0 if it ended without an error."""
    die_with_parent()
    use_scratch_folder()
    set_rank_variables()
    rank = int(os.environ.get("RANK", "0"))
    record = Record(Path(os.environ["DISTRAIN_RUN"]))
    try:
        redirect_output(record.dir / "logs" / f"rank-{rank}.log", errors="replace")
    except OSError as problem:
        return report_no_log(rank, problem)
    plan = record.state.plan
    assert plan is not None
    if plan.scheduled:
        accept_sigterm_from_parent()
    ignore_user_signals()
    device = identify(device_of_rank(plan.devices, int(os.environ.get("LOCAL_RANK", "0"))))
    with Reporter.from_env(exit_without_supervisor, device.label, device.uuid) as reporter:
        reporter.send(Phase(time=time.time(), rank=rank, phase="loading"))
        if error := call(partial(_train, record, reporter)):
            is_usage = isinstance(error, ConfigError | TaskError)
            failure = make_failure(rank, error, reporter.step, usage=is_usage, in_users_code=True)
            reporter.send(failure)
            if isinstance(error, SystemExit):
                raise error
            traceback.print_exception(error)
            return 1
    return 0


def _train(record: Record, reporter: Reporter | NullReporter) -> None:
    if record.config.train.compile:
        use_private_cache()  # torch makes its own as soon as it is imported
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

                attach(training, record.dir, parse_steps(os.environ[TAP]))
        if world.is_leader:
            reporter.send(training.facts())
        if error := call(partial(train, training)):
            training.meter.flush_after_error()
            raise training.strategy.explain(error) or error


if __name__ == "__main__":
    sys.exit(main())
