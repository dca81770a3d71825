"""The connection of a process that distrain did not start to the run that it joins."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from distrain.runners.errors import DistrainError
from distrain.runners.protocol.events import NEVER, Event, Failure, Finished, Hello, Notice, StopAt
from distrain.runners.protocol.reporter import Reporter

FIND_S = 60.0  # to wait for the observer, which starts with rank 0
CHECK_S = 0.05
LAST_S = 10.0  # at the end of the program: to be connected, and until the record is written


class JoiningReporter(Reporter):
    """A reporter that connects later, in its thread, and whose end is not that of the program.

    `find` returns the address to connect to, None while there is none. It may raise OSError or
    DistrainError: then, or after FIND_S, `on_lost` is called with a sentence, and nothing more is
    sent. `has_tried` is set once it is connected, or will not be.
    """

    def __init__(
        self, find: Callable[[], str | None], hello: Hello, on_lost: Callable[[str], None]
    ) -> None:
        self._find = find
        self._explain = on_lost
        # One that refuses a token closes the connection without a word.
        other_token = ", or its DISTRAIN_TOKEN is another one" if hello.token else ""
        self._reason = f"the observer has ended{other_token}"
        self._has_ended = False
        self.has_tried = threading.Event()
        self._deadline = time.monotonic() + FIND_S
        super().__init__("", hello)

    def send(self, event: Event) -> None:
        if isinstance(event, Finished | Failure):
            self._has_ended = True  # the other end may close the connection from now on
        super().send(event)

    def close(self) -> None:
        """Send what is queued, and wait until it is recorded, if that is soon."""
        self._deadline = min(self._deadline, time.monotonic() + LAST_S)
        self._finish(LAST_S)

    def _run(self) -> None:
        try:
            self._attach(self._await_address())
            with self._lock:
                self._send_queued()
            self.has_tried.set()
        except (OSError, DistrainError) as error:
            self._lose(str(error))
            return
        super()._run()

    def _await_address(self) -> str:
        while time.monotonic() < self._deadline:
            if address := self._find():
                return address
            time.sleep(CHECK_S)
        raise TimeoutError("no observer was found: rank 0 has not called distrain.init()")

    def _is_done(self, idle: bool) -> bool:
        return False  # the other end closes the connection, once everything is recorded

    def _handle(self, event: Event) -> None:
        if isinstance(event, Notice):  # why the other end closes the connection
            self._reason = event.text
        super()._handle(event)

    def _handle_lost_connection(self) -> None:
        is_expected = self._closing or self._has_ended
        self._lose("" if is_expected else f"nothing more is recorded: {self._reason}")

    def _lose(self, reason: str) -> None:
        """Discard what cannot be sent any more, and let a program that waits in a stop go on."""
        with self._stop_decided:
            self._discard_all()
            self.has_tried.set()
            self._handle(StopAt(step=NEVER))
        if reason:
            self._explain(reason)
