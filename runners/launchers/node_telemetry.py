"""What a node agent reports besides its ranks: samples of its host, and what the ranks print."""

from __future__ import annotations

import codecs
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from distrain.runners.config.plan import Plan
from distrain.runners.protocol.events import Event, Printed, Sampled
from distrain.runners.system.rank_identity import AgentIdentity

FORWARD_S = 0.5
LAST_SAMPLE_S = 2.0  # a driver may not answer
MAX_BYTES = 1 << 16  # of a log in one event
Send = Callable[[Event], None]


@contextmanager
def sampling(send: Send, identity: AgentIdentity, plan: Plan, every_s: float) -> Iterator[None]:
    """Sample the host, its GPUs and ranks. Of several agents on a host, one samples the host."""
    from distrain.runners.system.telemetry import GpuSampler, RankSampler, sample_host

    is_sampling_host = identity.local_rank == 0
    rank_sampler = RankSampler()

    def sample() -> None:
        ranks = rank_sampler.sample(_rank_pids(identity.ranks(plan.ranks_per_node)))
        if is_sampling_host or ranks:
            send(Sampled(host=sample_host() if is_sampling_host else None, ranks=ranks))

    @cache
    def gpus() -> GpuSampler:
        return GpuSampler(_gpu_choice(plan))  # never closed, which may wait for the driver too

    def sample_gpus() -> None:
        if samples := gpus().sample():
            send(Sampled(gpus=samples))

    with ExitStack() as stack:
        stack.enter_context(_repeating(sample, every_s))
        if is_sampling_host:
            stack.enter_context(_repeating(sample_gpus, every_s, wait_s=LAST_SAMPLE_S))
        yield


def _gpu_choice(plan: Plan) -> list[str] | None:
    """Return the UUIDs of the GPUs to sample; None for all, where the plan does not know them."""
    if plan.devices[0].kind != "cuda":
        return []
    return [device.uuid for device in plan.devices if device.uuid] or None


def _rank_pids(ranks: dict[int, int]) -> dict[int, int]:
    """Return the processes of the ranks, which are children of this one; `ranks` by local rank."""
    import psutil

    found = {}
    for child in psutil.Process().children():
        with suppress(psutil.Error, KeyError, ValueError):
            found[ranks[int(child.environ()["LOCAL_RANK"])]] = child.pid
    return found


@contextmanager
def forwarding_logs(send: Send, logs: Path) -> Iterator[None]:
    """Send what is appended to the ranks' logs in a folder, to the last byte."""
    positions: dict[Path, int] = {}
    decoders: dict[Path, codecs.IncrementalDecoder] = {}  # a letter may come in two pieces

    def forward() -> None:
        for path in logs.glob("rank-*.log"):
            decoder = decoders.setdefault(path, codecs.getincrementaldecoder("utf-8")("replace"))
            while data := _read_from(path, positions.get(path, 0)):
                positions[path] = positions.get(path, 0) + len(data)
                rank = int(path.stem.removeprefix("rank-"))
                send(Printed(rank=rank, text=decoder.decode(data)))

    try:
        with _repeating(forward, FORWARD_S):
            yield
    finally:
        forward()


def _read_from(path: Path, position: int) -> bytes:
    with path.open("rb") as file:
        file.seek(position)
        return file.read(MAX_BYTES)


@contextmanager
def _repeating(
    action: Callable[[], None], every_s: float, wait_s: float | None = None
) -> Iterator[None]:
    """Repeat an action in a thread; at the end wait for the last one, at most `wait_s`.

    It is repeated after an error too, as where no file can be opened for a moment; the first one is
    printed.
    """
    is_over = threading.Event()

    def run() -> None:
        has_failed = False
        while not is_over.wait(every_s):
            try:
                action()
            except Exception:
                if not has_failed:
                    traceback.print_exc()
                has_failed = True

    thread = threading.Thread(target=run, name="node telemetry", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(wait_s)
