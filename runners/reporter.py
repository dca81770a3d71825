"""A rank's end of the socket: one thread, a queue that cannot grow without bound, no torch.

Also the public way for any script to report to a run: `Reporter.from_env()` gives a reporter
that speaks where the script was started by distrain and one that does nothing elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Self

from runners.connecting import CHUNK, connect, secret
from runners.events import Event, Hello, Stop, StopAt, Stopping, Window, decode, encode

ROOM = 8  # events that may wait before windows begin to merge
FLUSH_S = 10.0


class Reporter:
    """Says events in order; merges windows under back-pressure; answers a stop.

    Thread-safe. `step` is the last that `goes_on` was told. Called from the reporting thread are
    `on_lost` when the supervisor is gone, and `on_event` with what it says, for those who are no
    ranks and have no stop to answer. Raises OSError where nobody listens.
    """

    def __init__(
        self,
        address: str,
        hello: Hello,
        on_lost: Callable[[], None] | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self._rank = hello.rank
        self._on_lost, self._on_event = on_lost, on_event
        self._queue: deque[Event] = deque([hello])
        self._lock = threading.RLock()
        self._gate = threading.Condition(self._lock)
        self._unsent = memoryview(b"")
        self.step = 0
        self._limit: float = float("inf")
        self._stop_at: StopAt | None = None
        self._closing = False
        self._socket = connect(address)
        self._socket.setblocking(False)
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_out.setblocking(False)
        # A forked loader worker must not keep the connection open when its rank dies.
        os.register_at_fork(after_in_child=self._close_sockets)
        self.thread = threading.Thread(target=self._run, name="reporter", daemon=True)
        self.thread.start()

    @classmethod
    def from_env(
        cls, on_lost: Callable[[], None] | None = None, device: str = "", device_uuid: str = ""
    ) -> Reporter | NullReporter:
        """The reporter of this rank, from DISTRAIN_SOCKET, RANK, LOCAL_RANK and WORLD_SIZE."""
        address = os.environ.get("DISTRAIN_SOCKET")
        if not address:
            return NullReporter()
        hello = Hello(
            token=secret(),
            rank=int(os.environ.get("RANK", "0")),
            local_rank=int(os.environ.get("LOCAL_RANK", "0")),
            world_size=int(os.environ.get("WORLD_SIZE", "1")),
            pid=os.getpid(),
            host=socket.gethostname(),
            device=device,
            device_uuid=device_uuid,
            attempt=int(os.environ.get("SLURM_RESTART_COUNT") or 0),
        )
        return cls(address, hello, on_lost)

    @property
    def own_address(self) -> str:
        """The address of this host that a TCP connection has here; empty of a Unix socket."""
        if self._socket.family == socket.AF_UNIX:
            return ""
        return str(self._socket.getsockname()[0])

    def say(self, event: Event) -> None:
        """Send an event, or queue it: it is never dropped, and never waits for the network."""
        with self._lock:
            last = self._queue[-1] if len(self._queue) >= ROOM else None
            if isinstance(last, Window) and isinstance(event, Window) and _mergeable(last, event):
                self._queue[-1] = last.merged(event)
            else:
                self._queue.append(event)
            # What goes out at once spares the training thread a fight with ours over Python's
            # lock. A broken connection is that thread's business: it will see it, too.
            with contextlib.suppress(OSError):
                self._send()
            waits = bool(self._queue or self._unsent)
        if waits:
            self._wake()

    def goes_on(self, step: int) -> bool:
        """Whether to go on after `step` finished steps; call at the end of each.

        During a stop it waits until the supervisor has heard every rank and names the step
        after which all leave.
        """
        self.step = step
        if step < self._limit:  # the usual case, without the lock: see `_obey`
            return True
        with self._lock:
            if step < self._limit:
                return True
            while self._stop_at is None:
                self._gate.wait()
            self._limit = self._stop_at.step
            return step < self._stop_at.step

    @property
    def save_at_stop(self) -> bool:
        """Whether the stop that ended the loop wants a checkpoint."""
        return self._stop_at is None or self._stop_at.save

    def close(self) -> None:
        """Send what waits, for at most FLUSH_S seconds, and hang up."""
        self._closing = True
        self._wake()
        if self.thread is not threading.current_thread():
            self.thread.join(FLUSH_S)
        self._close_sockets()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wake(self) -> None:
        # A full pipe already holds a wake-up; a closed one has nobody left to wake.
        with contextlib.suppress(OSError):
            self._wake_out.send(b"\0")

    def _close_sockets(self) -> None:
        for end in (self._socket, self._wake_in, self._wake_out):
            end.close()

    def _run(self) -> None:
        heard = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_in, selectors.EVENT_READ)
            # Writable at once: the greeting goes out even if nothing is said for long.
            selector.register(self._socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
            while True:
                try:
                    for key, _ in selector.select():
                        if key.fileobj is self._wake_in:
                            self._wake_in.recv(CHUNK)
                        elif not self._hear(heard):
                            return self._lost()
                    with self._lock:
                        self._send()
                        idle = not self._unsent and not self._queue
                except OSError:
                    return self._lost()
                if self._closing and idle:
                    return None
                wanted = selectors.EVENT_READ | (0 if idle else selectors.EVENT_WRITE)
                selector.modify(self._socket, wanted)

    def _send(self) -> None:
        """Send what there is room for, in order. Not without the lock."""
        while self._unsent or self._queue:
            if not self._unsent:
                self._unsent = memoryview(b"".join(map(encode, self._queue)))
                self._queue.clear()
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except BlockingIOError:
                return

    def _hear(self, heard: bytearray) -> bool:
        """Read what there is; False when the other end has hung up."""
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            return True
        heard += data
        *lines, rest = heard.split(b"\n")
        heard[:] = rest
        for line in lines:
            self._obey(decode(line))
        return bool(data)

    def _obey(self, event: Event) -> None:
        with self._gate:
            if self._on_event:
                self._on_event(event)
            elif isinstance(event, Stop) and self._stop_at is None:
                # The step under way is finished; nobody goes further until all have answered.
                # The training thread writes its step and then reads the limit. Here it is the
                # other way round: either it sees that it must wait, or this sees its step.
                self._limit = -1
                self._limit = self.step + 1
                self._queue.append(Stopping(rank=self._rank, step=self.step))
            elif isinstance(event, StopAt):
                self._stop_at = event
                self._limit = event.step
                self._gate.notify_all()

    def _lost(self) -> None:
        with self._gate:
            if self._stop_at is None and self._limit < float("inf"):
                # Nobody is left to say where to stop: here, rather than to wait for ever.
                self._obey(StopAt(step=int(self._limit)))
        if not self._closing and self._on_lost:
            self._on_lost()


class NullReporter:
    """Takes the place of a Reporter where nobody listens."""

    save_at_stop = True
    step = 0

    def say(self, event: Event) -> None: ...

    def goes_on(self, step: int) -> bool:
        self.step = step
        return True

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def _mergeable(earlier: Window, later: Window) -> bool:
    return (earlier.epoch, earlier.warmup) == (later.epoch, later.warmup)
