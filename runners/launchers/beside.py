"""What a node does beside its ranks: it samples its host, and sends what the ranks print."""

from __future__ import annotations

import codecs
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from runners.events import Event, Printed, Sampled
from runners.launchers.place import Place
from runners.plan import Plan

SHIP_S = 0.5
MOST = 1 << 16  # bytes of a log in one event
Say = Callable[[Event], None]


@contextmanager
def samples(say: Say, place: Place, plan: Plan, every: float) -> Iterator[None]:
    """Sample host, GPUs and ranks; of several tasks on a host the first tells host and GPUs."""
    from runners.hardware import GpuSampler, RankSampler, sample_host

    uuids = [device.uuid for device in plan.devices if device.kind == "cuda" and device.uuid]
    ranks = RankSampler()
    with GpuSampler(uuids or (None if plan.devices[0].kind == "cuda" else ())) as gpus:

        def look() -> None:
            here = ranks.sample(_pids(place.ranks(plan.ranks_per_node)))
            if place.local_rank == 0:
                say(Sampled(host=sample_host(), gpus=gpus.sample(), ranks=here))
            elif here:
                say(Sampled(ranks=here))

        with _again_and_again(look, every):
            yield


def _pids(ranks: dict[int, int]) -> dict[int, int]:
    """The processes of the ranks, which are children of this one."""
    import psutil

    found = {}
    for child in psutil.Process().children():
        with suppress(psutil.Error, KeyError, ValueError):
            found[ranks[int(child.environ()["LOCAL_RANK"])]] = child.pid
    return found


@contextmanager
def shipped(say: Say, logs: Path) -> Iterator[None]:
    """Send what the ranks' logs here grow by; of what is left at the end as well."""
    read: dict[Path, int] = {}
    texts: dict[Path, codecs.IncrementalDecoder] = {}  # a letter may come in two pieces

    def look() -> None:
        for path in logs.glob("rank-*.log"):
            text = texts.setdefault(path, codecs.getincrementaldecoder("utf-8")("replace"))
            while data := _more(path, read.get(path, 0)):
                read[path] = read.get(path, 0) + len(data)
                rank = int(path.stem.removeprefix("rank-"))
                say(Printed(rank=rank, text=text.decode(data)))

    try:
        with _again_and_again(look, SHIP_S):
            yield
    finally:
        look()


def _more(path: Path, start: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(MOST)


@contextmanager
def _again_and_again(look: Callable[[], None], every: float) -> Iterator[None]:
    over = threading.Event()

    def run() -> None:
        while not over.wait(every):
            look()

    thread = threading.Thread(target=run, name="beside", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
