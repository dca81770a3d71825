"""A rank's end of the connection: one thread and a queue of bounded size, without torch.

Also the public way for any script to report to a run: `Reporter.from_env()` returns a reporter
that sends where the script was started by distrain, and one that does nothing elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Self

from distrain.runners.protocol.client import CHUNK, PEER_CHECK_S, connect, is_silent, read_own_token
from distrain.runners.protocol.collectives import read_collectives
from distrain.runners.protocol.evaluated_batches import seconds_since_evaluated_batch
from distrain.runners.protocol.events import (
    NEVER,
    Event,
    Hello,
    Notice,
    StackRequest,
    Stacks,
    Stop,
    StopAt,
    Stopping,
    Window,
    decode,
    encode,
)
from distrain.runners.protocol.own_sockets import OwnSockets
from distrain.runners.protocol.stacks import main_cpu_s, make_stacks_readable, read_stacks

QUEUE_SIZE = 8  # events that may be queued before windows are merged
FLUSH_S = 10.0


class Reporter:
    """Sends events in order, merges windows under back-pressure, and answers a stop.

    Thread-safe. `step` is the last one passed to `should_continue`. `count_steps`, which a
    session replaces, returns the number of finished steps. `on_lost` is called when the connection
    to the supervisor is lost. `on_event`, for processes that are not ranks, is called with every
    message of the supervisor; the reporter then does not answer stops. All three are called in the
    reporting thread. Raises OSError where no supervisor listens.
    """

    def __init__(
        self,
        address: str,
        hello: Hello,
        on_lost: Callable[[], None] | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self._rank = hello.rank
        self._on_lost = on_lost
        self._on_event = on_event
        self._queue: deque[Event] = deque([hello])
        self._lock = threading.RLock()
        self._stop_decided = threading.Condition(self._lock)
        self._unsent = memoryview(b"")
        self._is_lost = False
        self._has_dropped = False
        self.step = 0
        self.count_steps: Callable[[], int] = lambda: self.step
        self._limit: float = float("inf")
        self._stop_at: StopAt | None = None
        self._closing = False
        self._sockets = OwnSockets()
        self._socket: socket.socket | None = None
        if address:
            self._attach(address)
        self._wake_in, self._wake_out = map(self._sockets.add, socket.socketpair())
        self._wake_out.setblocking(False)
        if on_event is None:
            make_stacks_readable()
        # A forked loader worker must not keep the connection open when its rank dies.
        os.register_at_fork(after_in_child=self._sockets.close)
        self.thread = threading.Thread(target=self._run, name="reporter", daemon=True)
        self.thread.start()

    @classmethod
    def from_env(
        cls, on_lost: Callable[[], None] | None = None, device: str = "", device_uuid: str = ""
    ) -> Reporter | NullReporter:
        """Return the reporter of this rank: DISTRAIN_SOCKET, RANK, LOCAL_RANK and WORLD_SIZE."""
        address = os.environ.get("DISTRAIN_SOCKET")
        if not address:
            return NullReporter()
        hello = Hello(
            token=read_own_token(),
            rank=int(os.environ.get("RANK", "0")),
            local_rank=int(os.environ.get("LOCAL_RANK", "0")),
            world_size=int(os.environ.get("WORLD_SIZE", "1")),
            pid=os.getpid(),
            host=socket.gethostname(),
            device=device,
            device_uuid=device_uuid,
            attempt=int(os.environ.get("SLURM_RESTART_COUNT") or 0),
            restart=int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0),
        )
        return cls(address, hello, on_lost)

    def _attach(self, address: str) -> None:
        """Connect to a supervisor. Raises OSError."""
        connection = self._sockets.add(connect(address))
        connection.setblocking(False)
        self._socket = connection

    @property
    def local_address(self) -> str:
        """This host's address in a TCP connection; "" for a Unix socket."""
        if self._socket is None or self._socket.family == socket.AF_UNIX:
            return ""
        return str(self._socket.getsockname()[0])

    def send(self, event: Event) -> None:
        """Send an event, or queue it. Never waits for the network.

        One that cannot be encoded is dropped; a notice says so once.
        """
        with self._lock:
            if self._is_lost:
                return
            last = self._queue[-1] if len(self._queue) >= QUEUE_SIZE else None
            if isinstance(last, Window) and isinstance(event, Window) and _mergeable(last, event):
                self._queue[-1] = last.merged(event)
            else:
                self._queue.append(event)
            # Sending here, where possible, saves waking the reporting thread, which would compete
            # with the training thread for Python's lock. The reporting thread sees a broken
            # connection too, and handles it.
            with contextlib.suppress(OSError):
                self._send_queued()
            is_queued = bool(self._queue or self._unsent)
        if is_queued:
            self._wake()

    def should_continue(self, step: int) -> bool:
        """Return whether to train on after `step` finished steps; call it after each step.

        During a stop it waits until the supervisor has an answer of every rank and sends the step
        after which all leave.
        """
        self.step = step
        if step < self._limit:  # the usual case, without the lock: see `_handle`
            return True
        with self._lock:
            while step >= self._limit and self._stop_at is None:
                self._stop_decided.wait()
            if self._stop_at is None:
                return True
            self._limit = self._stop_at.step
            return step < self._stop_at.step

    # Earlier names, for scripts that use them.
    say = send
    goes_on = should_continue

    @property
    def save_at_stop(self) -> bool:
        """Whether to write a checkpoint after the stop that ended the loop."""
        return self._stop_at is None or self._stop_at.save

    def close(self) -> None:
        """Send what is queued, for at most FLUSH_S seconds, and close the connection."""
        self._finish(FLUSH_S)

    def _finish(self, timeout_s: float) -> None:
        """Wait until everything is sent, unless that is impossible, and close the connection."""
        self._closing = True
        with self._lock:
            self._check_sockets()
        if not self._is_lost:
            self._wake()
            if self.thread is not threading.current_thread():
                self.thread.join(timeout_s)
        self._sockets.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wake(self) -> None:
        # A full pipe contains a wake-up already; after `close` there is no thread to wake.
        if self._sockets.is_open(self._wake_out):
            with contextlib.suppress(OSError):
                self._wake_out.send(b"\0")

    def _check_sockets(self) -> None:
        """Send nothing more once the program has closed a socket. Call it with the lock held."""
        if not (self._is_lost or self._sockets.are_open()):
            self._discard_all()
            self._limit = float("inf")
            self._stop_decided.notify_all()
            text = "the program has closed its connection, so nothing more of it is recorded"
            with contextlib.suppress(OSError, ValueError):  # it may have closed this too
                print(f"distrain: rank {self._rank}: {text}", file=sys.stderr)

    def _discard_all(self) -> None:
        """Discard what cannot be sent any more, now and later."""
        self._is_lost = True
        self._queue.clear()
        self._unsent = memoryview(b"")

    # --- the reporting thread --------------------------------------------------------------------

    def _run(self) -> None:
        # Not in a `with` block: its descriptor may be the program's by then.
        self._selector = selectors.DefaultSelector()
        is_lost = True
        with contextlib.suppress(OSError):
            is_lost = self._communicate(self._selector)
        with self._lock:
            self._check_sockets()
        if is_lost and not self._is_lost:
            self._handle_lost_connection()
        if self._sockets.are_open():
            self._selector.close()

    def _communicate(self, selector: selectors.BaseSelector) -> bool:
        """Send and receive; return whether the connection was lost. Raises OSError if it was."""
        assert self._socket
        received = bytearray()
        selector.register(self._wake_in, selectors.EVENT_READ)
        # Writable at once: the Hello is sent even if no event follows for a long time.
        selector.register(self._socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
        is_remote = self._socket.family != socket.AF_UNIX
        while not (is_remote and is_silent(self._socket)):
            for key, _ in selector.select(PEER_CHECK_S if is_remote else None):
                if key.fileobj is self._wake_in:
                    self._wake_in.recv(CHUNK)
                elif not self._receive(received):
                    return True
            with self._lock:
                self._send_queued()
                idle = not self._unsent and not self._queue
            if self._is_done(idle):
                return False
            wanted = selectors.EVENT_READ
            if not idle:
                wanted |= selectors.EVENT_WRITE
            selector.modify(self._socket, wanted)
        return True

    def _is_done(self, idle: bool) -> bool:
        """Return whether the connection may end; `idle`: everything was sent."""
        return self._closing and idle

    def _send_queued(self) -> None:
        """Send as much of the queue as the socket accepts, in order. Call it with the lock held."""
        if self._socket and not self._sockets.is_open(self._socket):
            self._check_sockets()
        while self._socket and (self._unsent or self._queue):
            if not self._unsent:
                self._unsent = memoryview(b"".join(map(self._encode, self._queue)))
                self._queue.clear()
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except BlockingIOError:
                return

    def _encode(self, event: Event) -> bytes:
        """Return the line of an event; without one, that of a notice, or nothing."""
        try:
            return encode(event)
        except Exception as error:  # of a type or value that JSON cannot represent
            if self._has_dropped:
                return b""
            self._has_dropped = True
            text = f"rank {self._rank} could not send a message: {error}"
            return encode(Notice(time=time.time(), rank=self._rank, text=text))

    def _receive(self, received: bytearray) -> bool:
        """Handle the messages that have arrived; return False when the other end has closed.

        `received` keeps an incomplete line for the next call.
        """
        assert self._socket
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            return True
        received += data
        *lines, rest = received.split(b"\n")
        received[:] = rest
        for line in lines:
            try:
                event = decode(line)
            except (ValueError, RecursionError):  # of a newer version, or not of a supervisor
                continue
            self._handle(event)
        return bool(data)

    def _handle(self, event: Event) -> None:
        with self._stop_decided:
            if self._on_event:
                self._on_event(event)
            elif isinstance(event, Stop) and self._stop_at is None:
                # The current step is finished; no rank goes further until all have answered.
                # The training thread writes its step and then reads the limit. This thread writes
                # the limit and then reads the step. So either the training thread sees that it
                # must wait, or this thread sees its latest step.
                self._limit = -1
                self._limit = self.step + 1
                self._queue.append(Stopping(rank=self._rank, step=self.step))
            elif isinstance(event, StackRequest):
                self._queue.append(
                    Stacks(
                        time=time.time(),
                        rank=self._rank,
                        number=event.number,
                        step=self.count_steps(),
                        threads=read_stacks(),
                        collectives=read_collectives(),
                        cpu_s=main_cpu_s(),
                        batch_s=seconds_since_evaluated_batch(),
                    )
                )
            elif isinstance(event, StopAt) and event.step == NEVER:
                self._limit = float("inf")
                self._stop_decided.notify_all()
            elif isinstance(event, StopAt):
                self._stop_at = event
                self._limit = event.step
                self._stop_decided.notify_all()

    def _handle_lost_connection(self) -> None:
        with self._stop_decided:
            if self._stop_at is None and self._limit < float("inf"):
                # No supervisor will send a StopAt: stop here instead of waiting forever.
                self._handle(StopAt(step=int(self._limit)))
            self._discard_all()
        if not self._closing and self._on_lost:
            self._on_lost()


class NullReporter:
    """Has the methods of a Reporter and sends nothing, where no supervisor listens."""

    save_at_stop = True
    step = 0
    count_steps: Callable[[], int] = int

    def send(self, event: Event) -> None: ...

    def should_continue(self, step: int) -> bool:
        self.step = step
        return True

    # Earlier names, for scripts that use them.
    say = send
    goes_on = should_continue

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def _mergeable(earlier: Window, later: Window) -> bool:
    return (earlier.epoch, earlier.warmup) == (later.epoch, later.warmup)
