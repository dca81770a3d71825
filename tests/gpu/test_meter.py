"""Times and losses of a GPU, which come later than the host asks for them."""

from __future__ import annotations

from typing import Any

import torch

from runners.clock import CudaClock
from runners.events import Window
from runners.meter import Meter
from runners.reporter import NullReporter

LONG = 500_000_000  # cycles: some tenths of a second


class Ear(NullReporter):
    def __init__(self) -> None:
        self.said: list[Any] = []

    def say(self, event: Any) -> None:
        self.said.append(event)


def busy(cycles: int) -> None:
    torch.cuda._sleep(cycles)


def test_phases_are_those_of_the_device_not_of_the_host(device: torch.device) -> None:
    # given work that the host only queues
    clock = CudaClock()
    clock.start()
    busy(LONG // 10)
    clock.mark("forward")
    busy(LONG)
    ready = clock.stamp()
    busy(LONG // 10)
    clock.mark("backward", ready)
    clock.mark("comm")
    clock.mark("optimizer")
    pending = clock.close()
    # then nothing waited for it, and every phase has its own time
    assert not pending.is_ready()
    reading = pending.get()
    phases = reading.phases
    assert phases["backward"] > 5 * phases["forward"] > 50 * phases["optimizer"]
    assert phases["backward"] > 5 * phases["comm"] > 0
    assert abs(sum(phases.values()) - reading.seconds) < 0.01 * reading.seconds
    assert pending.is_ready()


def test_losses_are_read_after_they_have_been_computed(device: torch.device) -> None:
    # given windows of one step, some of whose losses are long in coming
    ear = Ear()
    meter = Meter(ear, 0, CudaClock(), window_s=0.0, warmup_until=0)
    one, steps = torch.ones((), device=device), 200
    meter.begin()
    for step in range(1, steps + 1):
        if step % 50 == 0:
            busy(LONG // 10)
        meter.loss(one * step, 1)
        meter.step(0, step, 0.1, one * (step % 2))
    meter.flush()
    # then each is right
    windows = [event for event in ear.said if isinstance(event, Window)]
    assert [window.loss_sum for window in windows] == [float(n) for n in range(1, steps + 1)]
    assert [window.skipped for window in windows] == [n % 2 for n in range(1, steps + 1)]


def test_nothing_is_said_while_the_device_is_busy(device: torch.device) -> None:
    ear = Ear()
    meter = Meter(ear, 0, CudaClock(), window_s=0.0, warmup_until=0)
    loss = torch.ones((), device=device)

    def step(number: int) -> None:
        meter.loss(loss, 1)
        meter.step(0, number, 0.1, None)

    # given a first window, which loads kernels and pins memory (both may wait for the device)
    meter.begin()
    step(1)
    meter.flush()
    ear.said.clear()
    # when the device is busy, then a window that closes is not waited for
    meter.begin()
    busy(LONG)
    step(2)
    assert ear.said == []
    meter.flush()
    assert [window.loss_sum for window in ear.said] == [1.0]


def test_what_travels_behind_work_is_overlap_by_the_devices_own_time(device: torch.device) -> None:
    # given something that travels on a stream of its own, half of it behind work of the first one
    clock, wire = CudaClock(), torch.cuda.Stream(device)
    clock.start()
    left = clock.stamp()
    wire.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(wire):
        busy(LONG)
        back = clock.stamp()
    busy(LONG // 2)
    ready = clock.stamp()
    torch.cuda.current_stream(device).wait_stream(wire)
    clock.communicated([(left, back)], until=ready)
    clock.mark("backward", ready)
    clock.mark("comm")
    # then its hidden and its exposed part are the whole of it
    reading = clock.close().get()
    assert abs(reading.overlap - reading.phases["backward"]) < 0.05 * reading.wait
    assert abs(reading.overlap + reading.phases["comm"] - reading.wait) < 0.05 * reading.wait
