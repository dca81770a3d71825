"""Simulate many ranks in one process, each with its own connection and window rate.

A supervisor starts it in place of a launcher.
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
import time

from distrain.runners.protocol.client import connect
from distrain.runners.protocol.events import Event, Finished, Hello, Phase, Window, encode

TICK_S = 0.001


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ranks", type=int)
    parser.add_argument("windows", type=int, help="windows of each rank")
    parser.add_argument("rate", type=float, help="windows of a rank per second")
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    ranks = range(arguments.ranks)
    links = [connect(os.environ["DISTRAIN_SOCKET"]) for _ in ranks]
    for rank, link in enumerate(links):
        hello = Hello(rank=rank, world_size=len(links), host=socket.gethostname())
        _say(link, hello, Phase(time=time.time(), rank=rank, phase="training"))
    began = time.monotonic()
    due = [rank / len(links) / arguments.rate for rank in ranks]
    for turn in range(arguments.windows):
        for rank, link in enumerate(links):
            wait = began + turn / arguments.rate + due[rank] - time.monotonic()
            if wait > TICK_S:
                time.sleep(wait)
            _say(link, window(rank, turn + 1))
    for rank, link in enumerate(links):
        _say(link, Finished(time=time.time(), rank=rank, step=arguments.windows))
        link.close()


def window(rank: int, step: int) -> Window:
    """Return a window of one step with an integer loss, so that sums can be compared exactly."""
    loss = float((step * 7919 + rank) % 101)
    return Window(
        time=time.time(),
        rank=rank,
        epoch=0,
        step=step,
        steps=1,
        samples=32,
        loss_sum=32 * loss,
        loss_min=loss,
        loss_max=loss,
        lr=0.1,
        seconds=0.1012345678,
        data=0.0102345678,
        forward=0.0202345678,
        backward=0.0402345678,
        comm=0.0202345678,
        optimizer=0.0052345678,
    )


def _say(link: socket.socket, *events: Event) -> None:
    link.sendall(b"".join(map(encode, events)))


if __name__ == "__main__":
    main()
