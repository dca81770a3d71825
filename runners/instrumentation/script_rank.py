"""The process of a rank that runs a user program, and reports how it ended."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from distrain.runners import formatting
from distrain.runners.config.programs import program_path, working_folder
from distrain.runners.config.schema import RunConfig
from distrain.runners.instrumentation import api, automatic, hidden_modules, python_program
from distrain.runners.instrumentation.executable import Executable
from distrain.runners.instrumentation.position import EXECUTABLE_VARIABLE, PROCESS_VARIABLE
from distrain.runners.instrumentation.rank_process import (
    call,
    exit_without_supervisor,
    make_exit_failure,
    make_failure,
    redirect_output,
    report_no_log,
)
from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.protocol.events import Failure, Finished, Phase
from distrain.runners.protocol.reporter import Reporter
from distrain.runners.system.processes import catch_user_signals, die_with_parent
from distrain.runners.system.rank_identity import meet_at_first_host, set_rank_variables
from distrain.runners.system.scratch import use_scratch_folder

SWITCHED_OFF = "not reported by the script; automatic hooks are off"
INTERRUPTED = 128 + signal.SIGINT


def main() -> int:
    """Run the program of the config and return its exit code."""
    die_with_parent()
    use_scratch_folder()
    set_rank_variables()
    meet_at_first_host()
    rank = int(os.environ.get("RANK", "0"))
    folder = Path(os.environ["DISTRAIN_RUN"])
    config = RunConfig.from_toml((folder / "config.toml").read_text("utf-8"))
    try:
        redirect_output(folder / "logs" / f"rank-{rank}.log")
    except OSError as error:
        return report_no_log(rank, error)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # inherited from a shell's background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    script = config.script
    path = program_path(config, Path.cwd())
    os.chdir(working_folder(config, Path.cwd()))
    if script.is_python:
        return _run_python(config, path, rank)
    return _run_executable(path, script.args, rank)


def _run_python(config: RunConfig, path: str, rank: int) -> int:
    script = config.script
    reporter = Reporter.from_env(exit_without_supervisor)
    reporter.send(Phase(time=time.time(), rank=rank, phase="running"))
    report = config.report
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    session = RankSession(reporter, rank, report.window_s, report.skip_steps, world_size)
    api.begin(session)
    if script.auto:
        automatic.install(session)
    else:
        session.sources.lose(SWITCHED_OFF)
    has_failed = False
    pid = os.getpid()
    os.environ[PROCESS_VARIABLE] = str(pid)

    def report_end() -> None:
        if os.getpid() != pid:  # a child that the program has forked
            return
        session.end(has_failed=has_failed)
        if not has_failed:
            reporter.send(
                Finished(
                    time=time.time(),
                    rank=rank,
                    step=session.steps or session.stop.calls,
                    stopped=session.stop.is_stopped,
                )
            )
        reporter.close()

    # Before those of the program, so that it is called after them, and after all its threads.
    atexit.register(report_end)
    if script.module:
        uncaught = call(partial(python_program.run_module, script.module, script.args))
    else:
        uncaught = call(partial(python_program.run_script, path, script.args))
    if uncaught is None:
        return 0
    python_program.hide_own_frames(uncaught)
    if isinstance(uncaught, SystemExit):
        if failure := make_exit_failure(rank, uncaught, session.steps):
            has_failed = True
            reporter.send(failure)
        raise uncaught
    has_failed = True
    with hidden_modules.restored():
        reporter.send(make_failure(rank, uncaught, session.steps))
        session.flush(has_failed=True)  # the program's own hook may end the process at once
    python_program.print_uncaught(uncaught)
    return INTERRUPTED if isinstance(uncaught, KeyboardInterrupt) else 1


def _run_executable(path: str, arguments: Sequence[str], rank: int) -> int:
    os.environ[EXECUTABLE_VARIABLE] = "1"
    os.environ.pop(PROCESS_VARIABLE, None)  # of a program that has started this run
    try:
        program = Executable(path, arguments)
        catch_user_signals(signal.SIGUSR1)
        program.end_with_parent()
    except OSError as error:
        with Reporter.from_env() as reporter:
            reporter.send(make_failure(rank, error, usage=True))
        return 1
    with Reporter.from_env(exit_without_supervisor) as reporter:
        reporter.send(Phase(time=time.time(), rank=rank, phase="running"))
        code = program.wait()
        if code:
            how = f"exited with code {code}"
            if code < 0:
                how = f"killed by {formatting.signal_name(-code)}"
            failure = Failure(time=time.time(), rank=rank, error="Exit", message=how)
            reporter.send(failure)
        else:
            reporter.send(Finished(time=time.time(), rank=rank, step=0))
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
