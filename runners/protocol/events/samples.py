"""Measurements of hosts, GPUs and ranks, by the supervisor and by nodes on their hosts."""

from __future__ import annotations

import msgspec

from distrain.runners.protocol.events.base import Event, Int

GPUS_PER_HOST = 1000


class GpuSample(msgspec.Struct, frozen=True, kw_only=True):
    """NVML's measurements of one GPU; None where the device does not support one.

    Utilisation is in percent, memory in bytes, power in watts, temperature in °C, clocks in MHz,
    energy in joules since the driver was loaded; `processes` maps pids to bytes (or None).
    `gpu` is NVML's index plus GPUS_PER_HOST times the host's number in the run.
    """

    time: float
    gpu: Int
    uuid: str
    name: str
    utilisation: float | None = None
    memory_used: float | None = None
    memory_total: float | None = None
    power: float | None = None
    temperature: float | None = None
    sm_clock: float | None = None
    memory_clock: float | None = None
    energy: float | None = None
    processes: dict[int, int | None] = {}

    @property
    def host(self) -> int:
        return self.gpu // GPUS_PER_HOST

    @property
    def index(self) -> int:
        return self.gpu % GPUS_PER_HOST


class HostSample(msgspec.Struct, frozen=True, kw_only=True):
    """One machine: cpu in percent of all cores, memory in bytes, load average of one minute.

    `host` is its index in `RunState.hosts`.
    """

    host: Int = 0
    time: float
    cpu: float
    memory_used: float
    memory_total: float
    load: float


class RankSample(msgspec.Struct, frozen=True, kw_only=True):
    """One rank with its loader workers: cpu in percent of one core, rss in bytes.

    Pages of mapped files are not part of `rss`, because they are the kernel's cache of these files.
    """

    time: float
    rank: Int
    cpu: float
    rss: float
    processes: Int


class Sampled(Event, frozen=True, tag="sampled"):
    """Samples of a node's host, GPUs and ranks at one moment; its host is always number 0.

    Where each rank has a task of its own, the first task of a host samples host and GPUs.
    """

    host: HostSample | None = None
    gpus: list[GpuSample] = []
    ranks: list[RankSample] = []
