"""Times and losses of a GPU, which are ready later than on the host."""

from __future__ import annotations

import torch

from distrain.runners.distributed.cuda_timing import CudaClock
from distrain.runners.protocol.events import Window
from distrain.runners.training.meter import Meter
from tests.support.reporters import RecordingReporter

LONG = 500_000_000  # cycles: some tenths of a second


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
    # then the host did not wait, and every phase has its own time
    assert not pending.is_ready()
    reading = pending.get()
    phases = reading.phases
    assert phases["backward"] > 5 * phases["forward"] > 50 * phases["optimizer"]
    assert phases["backward"] > 5 * phases["comm"] > 0
    assert abs(sum(phases.values()) - reading.seconds) < 0.01 * reading.seconds
    assert pending.is_ready()


def test_losses_are_read_after_they_have_been_computed(device: torch.device) -> None:
    # given windows of one step, some of whose losses take long
    reporter = RecordingReporter()
    meter = Meter(reporter, 0, CudaClock(), window_s=0.0, warmup_until=0)
    one = torch.ones((), device=device)
    steps = 200
    meter.begin()
    for step in range(1, steps + 1):
        if step % 50 == 0:
            busy(LONG // 10)
        meter.add_loss(one * step, 1)
        meter.end_step(0, step, 0.1, one * (step % 2))
    meter.flush()
    # then each loss is right
    windows = [event for event in reporter.events if isinstance(event, Window)]
    assert [window.loss_sum for window in windows] == [float(n) for n in range(1, steps + 1)]
    assert [window.skipped for window in windows] == [n % 2 for n in range(1, steps + 1)]


def test_nothing_is_reported_while_the_device_is_busy(device: torch.device) -> None:
    reporter = RecordingReporter()
    meter = Meter(reporter, 0, CudaClock(), window_s=0.0, warmup_until=0)
    loss = torch.ones((), device=device)

    def step(number: int) -> None:
        meter.add_loss(loss, 1)
        meter.end_step(0, number, 0.1, None)

    # given a first window, which loads kernels and pins memory (both may wait for the device)
    meter.begin()
    step(1)
    meter.flush()
    reporter.events.clear()
    # when the device is busy, then closing a window does not wait for it
    meter.begin()
    busy(LONG)
    step(2)
    assert reporter.events == []
    meter.flush()
    assert [window.loss_sum for window in reporter.events] == [1.0]


def test_communication_during_work_is_overlap_in_the_devices_time(device: torch.device) -> None:
    # given communication on its own stream, half of it during work of the main stream
    clock = CudaClock()
    comm_stream = torch.cuda.Stream(device)
    clock.start()
    arrival = clock.stamp()
    comm_stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(comm_stream):
        busy(LONG)
        end = clock.stamp()
    busy(LONG // 2)
    ready = clock.stamp()
    torch.cuda.current_stream(device).wait_stream(comm_stream)
    clock.add_all_reduces([(arrival, end)], until=ready)
    clock.mark("backward", ready)
    clock.mark("comm")
    # then overlap and the rest add up to its duration
    reading = clock.close().get()
    assert abs(reading.overlap - reading.phases["backward"]) < 0.05 * reading.wait
    assert abs(reading.overlap + reading.phases["comm"] - reading.wait) < 0.05 * reading.wait
