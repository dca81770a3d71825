"""`join`: this host takes part in a run that another has begun."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from pathlib import Path

from runners import rendezvous, words
from runners.cli.following import NOW, STOPPING
from runners.cli.signals import Signals
from runners.cli.text import say
from runners.config import RunConfig, parse_devices
from runners.connecting import (
    TOKEN,
    TOKEN_FILE,
    ask,
    given_token,
    is_place,
    joined,
    read_token,
    split,
)
from runners.devices import devices_for
from runners.errors import ConfigError
from runners.events import Stop
from runners.launchers import native
from runners.network import address_of

TICK_S = 0.05
MOST_OF_A_LOG = 4_000  # characters
ENOUGH = 3  # of Ctrl-C, to leave a run that does not stop


def join(arguments: Namespace) -> int:
    """Join the run at HOST:PORT; its exit code is the run's."""
    return join_at(
        arguments.place, arguments.token_file, arguments.node_rank, arguments.devices or ""
    )


def of_config(config: RunConfig) -> int:
    """Join as the config says; the token is that of $DISTRAIN_TOKEN_FILE."""
    token, place, devices = os.environ.get(TOKEN_FILE), config.dist.rendezvous, config.devices
    if not place:
        raise ConfigError([("dist.rendezvous", "where to join: HOST:PORT of host 0")])
    if not token:
        raise ConfigError(f"a host that joins needs the run's token: set {TOKEN_FILE}")
    chosen = devices if isinstance(devices, str) else ",".join(map(str, devices))
    return join_at(place, token, config.dist.node_rank, "" if chosen == "auto" else chosen)


def join_at(place: str, token_file: str, number: int | None, devices: str) -> int:
    """Raises ConfigError before anything is started, DistrainError where the name of the host is
    not known.
    """
    if not is_place(place):
        raise ConfigError(f"where to join is HOST:PORT as the first host tells it, not {place!r}")
    if number is not None and number < 1:
        raise ConfigError("host 0 is the one that has begun the run: count from 1")
    read_token(token_file)
    if devices:  # a wrong choice is told here; whether they suffice, once the run is known
        devices_for(RunConfig().with_changes({"devices": parse_devices(devices)}))
    host, port = split(place)
    where = f"tcp:{joined(address_of(host), port)}"
    with Signals() as signals:
        node = str(-1 if number is None else number)
        command = ("runners.launchers.guest", node, devices)
        return GuestProcess(where, token_file, *command).followed(signals)


def as_task(config: RunConfig) -> int:
    """Take part in the run that the process with RANK 0 begins, by the place that a scheduler has
    given to this one. Where that run reports is told at the place where all meet, and so is its
    token, unless it is known here.
    """
    if problems := rendezvous.problems(config):
        raise ConfigError(problems)
    method, patience = config.dist.init_method or "env://", str(config.dist.join_timeout_s)
    with tempfile.TemporaryDirectory(prefix="distrain-task-") as folder, Signals() as signals:
        token = Path(folder) / TOKEN
        token.touch(0o600)
        token.write_text(given_token())
        command = ("runners.launchers.env", "joins", method, patience)
        return GuestProcess("", str(token), *command, launcher="env").followed(signals)


class GuestProcess:
    """The process that does the work, in a session of its own: a Ctrl-C is ours to answer."""

    def __init__(self, place: str, token_file: str, *command: str, launcher: str = "") -> None:
        self._place, self._token_file = place, token_file
        self._state = ""
        ours = {"DISTRAIN_SOCKET": place, TOKEN_FILE: token_file, "PYTHONSAFEPATH": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", *command],
            env={k: v for k, v in native(launcher).items() if k != "DISTRAIN_RUN"} | ours,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._complaints = ""
        self._readers = [threading.Thread(target=read) for read in (self._show, self._keep)]

    def followed(self, signals: Signals) -> int:
        """Show it to its end; a Ctrl-C stops the run, before it has begun only this host."""
        answered = 0
        for reader in self._readers:
            reader.start()
        while self._process.poll() is None:
            if signals.ended_by is not None:
                self._process.terminate()
                signals.ended_by = None
            if signals.interrupts > answered:
                answered += 1
                self._interrupt(answered)
            time.sleep(TICK_S)
        for reader in self._readers:
            reader.join()
        if self._state not in ("completed", "failed", "stopped"):
            say(self._complaints[-MOST_OF_A_LOG:].strip() or "distrain: it ended without a word")
        code = self._process.returncode
        return 128 - code if code < 0 else code

    def _interrupt(self, times: int) -> None:
        if self._state != "training" or times >= ENOUGH:
            self._process.terminate()
            return
        line("you", STOPPING if times == 1 else NOW)
        try:
            ask(self._place, Stop(now=times > 1), token=read_token(self._token_file))
        except OSError as error:
            line("warning", f"the first host does not answer: {error.strerror or error}")

    def _show(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            what, tab, how = text.rstrip("\n").partition("\t")
            if tab:
                self._state = self._state if what == "warning" else what
                if what == "connecting":
                    self._place = f"tcp:{how}"
                line(what, how)

    def _keep(self) -> None:
        assert self._process.stderr is not None
        for text in self._process.stderr:
            self._complaints = (self._complaints + text)[-MOST_OF_A_LOG:]


def line(what: str, how: str) -> None:
    """As `run` has them in a pipe."""
    say(f"{words.clock(time.time())}  {what:<10}  {how}")
