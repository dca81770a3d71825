"""`join`: let this host take part in a run that was started on another host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from distrain.runners import formatting
from distrain.runners.cli.signals import Signals
from distrain.runners.cli.terminal import print_message
from distrain.runners.config.constraints import scheduler_problems
from distrain.runners.config.device_choice import choose_devices
from distrain.runners.config.planning import host_for
from distrain.runners.config.schema import RunConfig, parse_devices
from distrain.runners.errors import ConfigError, DistrainError
from distrain.runners.launchers.command import JOIN, clean_environment
from distrain.runners.launchers.supervisor_link import SIGTERM_REASON
from distrain.runners.protocol.client import (
    TOKEN_FILE_NAME,
    TOKEN_FILE_VARIABLE,
    is_address,
    join_address,
    read_token,
    read_user_token,
    send_to_supervisor,
    split_address,
)
from distrain.runners.protocol.events import Stop
from distrain.runners.session import runs_folder
from distrain.runners.system import scheduler_env
from distrain.runners.system.limits import explain
from distrain.runners.system.network import address_of, reachable_address
from distrain.runners.system.scratch import scratch_folder

TICK_S = 0.05
MAX_ERROR_TEXT = 4_000  # characters of the process's stderr that are kept
MAX_INTERRUPTS = 3  # the third Ctrl-C leaves a run that does not stop


def execute(arguments: Namespace) -> int:
    """Join the run at HOST:PORT, and return the exit code of the run."""
    devices = arguments.devices or ""
    return _join_at(
        arguments.address, arguments.token_file, arguments.node_rank, devices, arguments.runs_dir
    )


def join_as_configured(config: RunConfig, runs_dir: str | None) -> int:
    """Join the run at `dist.rendezvous`, with the token in the file $DISTRAIN_TOKEN_FILE."""
    token_file = os.environ.get(TOKEN_FILE_VARIABLE)
    address = config.dist.rendezvous
    if not address:
        raise ConfigError([("dist.rendezvous", "set it to HOST:PORT of host 0, to join its run")])
    if not token_file:
        raise ConfigError(f"a host that joins needs the run's token: set {TOKEN_FILE_VARIABLE}")
    devices = config.devices
    chosen = devices if isinstance(devices, str) else ",".join(map(str, devices))
    if chosen == "auto":
        chosen = ""
    return _join_at(address, token_file, config.dist.node_rank, chosen, runs_dir)


def _join_at(
    address: str, token_file: str, node_rank: int | None, devices: str, runs_dir: str | None
) -> int:
    """Join the run; without `node_rank` as the next free host, without `devices` as it configures.

    Raises ConfigError before anything is started, DistrainError if the host name is unknown.
    """
    if not is_address(address):
        raise ConfigError(f"the address must be HOST:PORT as the first host prints it: {address!r}")
    if node_rank is not None and node_rank < 1:
        raise ConfigError("host 0 is the one that started the run; number other hosts from 1")
    token = read_token(token_file)
    if devices:  # this reports an invalid choice; whether it suffices depends on the run's config
        choice = RunConfig().with_changes({"devices": parse_devices(devices)})
        choose_devices(choice, host_for(choice))
    host, port = split_address(reachable_address(address))  # host 0 may be here, and listens there
    supervisor = f"tcp:{join_address(address_of(host), port)}"
    number = str(-1 if node_rank is None else node_rank)
    command = ["distrain.runners.launchers.joined_host", number, devices]
    folder = runs_folder(runs_dir)
    with _token_copy(token) as copy, Signals() as signals:
        return JoiningProcess(command, supervisor, copy, folder).follow(signals)


@contextmanager
def _token_copy(token: str) -> Iterator[str]:
    """Yield the path of a copy of the token, because the user may remove the file it came from.

    Raises DistrainError where it cannot be written.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(scratch_folder("task-")) / TOKEN_FILE_NAME
            file.touch(0o600)
            file.write_text(token)
        except OSError as error:
            text = f"cannot write the run's token to a temporary folder: {explain(error)}"
            raise DistrainError(f"{text}; choose another folder with TMPDIR") from None
        yield str(file)


def join_as_rank(config: RunConfig, runs_dir: str | None) -> int:
    """Join, as the rank that a scheduler assigned to this process, the run that rank 0 starts.

    Rank 0 publishes the address of its supervisor, and the token unless it is known here, at the
    rendezvous of the ranks.
    """
    problems = scheduler_problems(config, os.environ)
    if problem := scheduler_env.meeting_file_problem(config.dist.init_method):
        problems.append(("dist.init_method", problem))
    if problems:
        raise ConfigError(problems)
    method = config.dist.init_method or "env://"
    timeout_s = str(config.dist.join_timeout_s)
    command = ["distrain.runners.launchers.env", JOIN, method, timeout_s]
    folder = runs_folder(runs_dir)
    with _token_copy(read_user_token()) as copy, Signals() as signals:
        return JoiningProcess(command, "", copy, folder, launcher="env").follow(signals)


class JoiningProcess:
    """The process that starts ranks on this host, in a session of its own.

    So a Ctrl-C reaches only this command, which answers it. The process prints "event, tab,
    description" lines to stdout and errors to stderr. What a script saves here goes to `runs_dir`.
    """

    def __init__(
        self,
        command: list[str],
        supervisor: str,
        token_file: str,
        runs_dir: Path,
        *,
        launcher: str = "",
    ) -> None:
        self._supervisor = supervisor
        self._token_file = token_file
        self._event = ""  # the last one, except warnings
        self._has_left = False  # by a Ctrl-C, which the process sees as SIGTERM
        self._errors = ""
        environment = dict(clean_environment(launcher))
        environment.pop("DISTRAIN_RUN", None)
        environment["DISTRAIN_SOCKET"] = supervisor
        environment[TOKEN_FILE_VARIABLE] = token_file
        environment["DISTRAIN_RUNS_DIR"] = str(runs_dir)
        environment["PYTHONSAFEPATH"] = "1"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def follow(self, signals: Signals) -> int:
        """Print its events until it ends, and return its exit code.

        Ctrl-C stops the run, or before the run has started training only this host.
        """
        readers = [
            threading.Thread(target=read) for read in (self._print_events, self._collect_errors)
        ]
        for reader in readers:
            reader.start()
        answered = 0  # of the interrupts
        while self._process.poll() is None:
            if signals.ended_by == signal.SIGTERM:  # without its terminal it goes on, like the run
                self._process.terminate()
                signals.ended_by = None
            if signals.interrupts > answered:
                answered += 1
                self._interrupt(answered)
            time.sleep(TICK_S)
        for reader in readers:
            reader.join()
        code = self._process.returncode
        has_ended = self._event in ("completed", "failed", "stopped")
        if self._has_left and not has_ended:
            _print_event("stopped", "this host has left the run, on Ctrl-C")
            return 128 + signal.SIGINT
        if not has_ended:
            errors = self._errors.strip()
            if code < 0:
                name = formatting.signal_name(-code)
                errors = f"{errors}\ndistrain: the joining process was killed by {name}".strip()
            with suppress(OSError):
                print_message(errors or "distrain: the joining process printed no error")
        return 128 - code if code < 0 else code

    def _interrupt(self, number: int) -> None:
        if self._event != "training" or number >= MAX_INTERRUPTS:
            self._has_left = True
            self._process.terminate()
            return
        if number == 1:
            _print_event("distrain", "stopping the run on all hosts; Ctrl-C again ends it at once")
        else:
            _print_event("distrain", "ending the run at once; Ctrl-C again only leaves")
        try:
            send_to_supervisor(
                self._supervisor, Stop(now=number > 1), token=read_token(self._token_file)
            )
        except OSError as error:
            reason = error.strerror or error
            _print_event("warning", f"the first host does not answer: {reason}")

    def _print_events(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event, tab, description = line.rstrip("\n").partition("\t")
            if not tab or (self._has_left and description.rstrip() == SIGTERM_REASON):
                continue
            if event != "warning":
                self._event = event
            if event == "connecting":
                self._supervisor = f"tcp:{description}"
            _print_event(event, description)

    def _collect_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = (self._errors + line)[-MAX_ERROR_TEXT:]


def _print_event(event: str, description: str) -> None:
    """Print a line as `run` does in a pipe, whose reader may have ended: Ctrl-C also ends tee."""
    with suppress(OSError):
        print_message(f"{formatting.time_of_day(time.time())}  {event:<10}  {description}")
