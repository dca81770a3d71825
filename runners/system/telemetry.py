"""Samples of the hardware: GPUs through NVML, the host and the ranks through psutil.

It knows nothing of runs or records, loads no torch, and starts no thread: the caller decides when
to sample. A figure that a device does not offer is None, never 0.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import psutil

from distrain.runners.protocol.events import GpuSample, HostSample, RankSample
from distrain.runners.system.devices import Device, all_gpus, gpus, nvml
from distrain.runners.system.host import memory

NvmlQuery = Callable[[Any, Any], Any]

_MAPPED_FILES = re.compile(rb"^RssFile:\s+(\d+) kB", re.MULTILINE)

# Several calls for one figure: old drivers lack the new call, new ones drop the old.
NVML_QUERIES: dict[str, tuple[NvmlQuery, ...]] = {
    "utilisation": (lambda lib, gpu: lib.nvmlDeviceGetUtilizationRates(gpu).gpu,),
    "memory": (
        # Version 1 counts what the driver keeps for itself as used; nvidia-smi does not.
        lambda lib, gpu: lib.nvmlDeviceGetMemoryInfo(gpu, version=lib.nvmlMemory_v2),
        lambda lib, gpu: lib.nvmlDeviceGetMemoryInfo(gpu),
    ),
    "power": (lambda lib, gpu: lib.nvmlDeviceGetPowerUsage(gpu) / 1000,),
    "temperature": (
        lambda lib, gpu: lib.nvmlDeviceGetTemperature(gpu, lib.NVML_TEMPERATURE_GPU),
        lambda lib, gpu: lib.nvmlDeviceGetTemperatureV(gpu, lib.NVML_TEMPERATURE_GPU),
    ),
    "sm_clock": (lambda lib, gpu: lib.nvmlDeviceGetClockInfo(gpu, lib.NVML_CLOCK_SM),),
    "memory_clock": (lambda lib, gpu: lib.nvmlDeviceGetClockInfo(gpu, lib.NVML_CLOCK_MEM),),
    "energy": (lambda lib, gpu: lib.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000,),
    "processes": (
        lambda lib, gpu: lib.nvmlDeviceGetComputeRunningProcesses(gpu),
        lambda lib, gpu: lib.nvmlDeviceGetComputeRunningProcesses_v2(gpu),
    ),
}


class _LostError(Exception):
    """The GPU is lost; it does not come back without a reboot."""


class GpuSampler:
    """Samples the GPUs with the given UUIDs, or all that CUDA would see.

    Without a driver it has no GPUs and every sample is empty. Close it, or use it in `with`, unless
    the driver may not answer any more: one that is not closed ends with the process.
    """

    def __init__(self, uuids: Iterable[str] | None = None) -> None:
        self._session = ExitStack()
        self._lib, self.reason = self._session.enter_context(nvml())
        self.devices: list[Device] = []
        self._handles: dict[str, Any] = {}
        if self._lib is None:
            return
        wanted = None if uuids is None else set(uuids)
        for device in gpus() if wanted is None else all_gpus():
            if wanted is None or device.uuid in wanted:
                self._add(device)

    def _add(self, device: Device) -> None:
        self.devices.append(device)
        try:
            self._handles[device.uuid] = self._lib.nvmlDeviceGetHandleByUUID(device.uuid)
        except self._lib.NVMLError:
            return

    def sample(self) -> list[GpuSample]:
        """Return one sample per GPU; after a GPU was lost all its figures stay None."""
        return [self._sample(device) for device in self.devices]

    def _sample(self, device: Device) -> GpuSample:
        bare = GpuSample(time=time.time(), gpu=device.index, uuid=device.uuid, name=device.name)
        if (handle := self._handles.get(device.uuid)) is None:
            return bare
        try:
            figures = {name: self._read(handle, calls) for name, calls in NVML_QUERIES.items()}
        except _LostError:
            del self._handles[device.uuid]
            return bare
        memory = figures.pop("memory")
        processes = figures.pop("processes") or []
        return msgspec.structs.replace(
            bare,
            **figures,
            # A driver's mistake may be larger than an integer of SQLite.
            memory_used=memory and float(memory.used),
            memory_total=memory and float(memory.total),
            processes={process.pid: process.usedGpuMemory for process in processes},
        )

    def _read(self, handle: Any, calls: tuple[NvmlQuery, ...]) -> Any:
        for call in calls:
            try:
                return call(self._lib, handle)
            except self._lib.NVMLError as error:
                if error.value == self._lib.NVML_ERROR_GPU_IS_LOST:
                    raise _LostError from None
        return None

    def close(self) -> None:
        """End the NVML session; further samples are empty."""
        self.devices = []
        self._handles = {}
        self._session.close()

    def __enter__(self) -> GpuSampler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- host --------------------------------------------------------------------------------------

# Not psutil.cpu_percent(): that counts from each thread's own last call and begins with a false 0.
_last_cpu_times = psutil.cpu_times()


def sample_host() -> HostSample:
    """Return a sample of the host; `cpu` is the mean since the last call, or since the import."""
    global _last_cpu_times
    before = _last_cpu_times
    _last_cpu_times = psutil.cpu_times()
    total, used = memory()
    return HostSample(
        time=time.time(),
        cpu=_busy_percent(before, _last_cpu_times),
        memory_used=used,
        memory_total=total,
        load=psutil.getloadavg()[0],
    )


def _busy_percent(before: Any, after: Any) -> float:
    # Linux counts a guest's time in `user` as well.
    counted = [name for name in after._fields if name not in ("guest", "guest_nice")]
    spent = {name: max(0.0, getattr(after, name) - getattr(before, name)) for name in counted}
    total = sum(spent.values())
    idle = spent["idle"] + spent.get("iowait", 0.0)
    # This order rounds to no more than 100.
    return 100 * max(0.0, 1 - idle / total) if total else 0.0


# --- ranks -------------------------------------------------------------------------------------


class RankSampler:
    """Samples CPU and memory of ranks with all their descendants, such as loader workers."""

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}
        self._cpu_seconds: dict[int, float] = {}
        self._sampled: dict[int, float] = {}

    def sample(self, pids: Mapping[int, int]) -> list[RankSample]:
        """Return one sample per rank of `pids` (rank → PID) that is alive.

        CPU is the mean since the last sample, at first since the process started.
        """
        alive: set[int] = set()
        samples = [self._sample(rank, pid, alive) for rank, pid in pids.items()]
        for known in (self._processes, self._cpu_seconds, self._sampled):
            for pid in known.keys() - alive:
                del known[pid]
        return [sample for sample in samples if sample is not None]

    def _sample(self, rank: int, pid: int, alive: set[int]) -> RankSample | None:
        figures = {}
        for member in (pid, *_descendants(pid)):
            if (used := self._measure(member)) is not None:
                figures[member] = used
        if pid not in figures:
            return None
        alive.update(figures)
        now = time.time()
        since = self._sampled.get(pid)
        self._sampled[pid] = now
        if since is None:
            since = self._processes[pid].create_time()
        spent = sum(cpu for cpu, _ in figures.values())
        return RankSample(
            time=now,
            rank=rank,
            cpu=100 * spent / (now - since) if now > since else 0.0,
            rss=sum(rss for _, rss in figures.values()),
            processes=len(figures),
        )

    def _measure(self, pid: int) -> tuple[float, int] | None:
        """Return CPU seconds since the last sample, and bytes; None if dead or a zombie."""
        try:
            process = self._processes.get(pid) or psutil.Process(pid)
            times = process.cpu_times()
            rss = process.memory_info().rss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return None
        if rss == 0:
            return None
        total = times.user + times.system
        before = self._cpu_seconds.get(pid, 0.0)
        self._processes[pid] = process
        self._cpu_seconds[pid] = total
        # A total that fell means that a new process has the PID.
        spent = total - before if total >= before else total
        return spent, max(0, rss - _mapped_files(pid))


def _mapped_files(pid: int) -> int:
    """Return the bytes of mapped files, such as libraries and data, that a process has in memory.

    They are the kernel's cache of these files: it is shared, and dropped where memory is needed.
    """
    found = _MAPPED_FILES.search(_contents(f"/proc/{pid}/status"))
    return 1024 * int(found[1]) if found else 0


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    unvisited = [pid]
    while unvisited:
        children = list(_children(unvisited.pop()))
        found += children
        unvisited += children
    return found


def _children(pid: int) -> Iterator[int]:
    """Yield child PIDs from /proc/PID/task/*/children: a tenth of the cost of psutil's walk."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        if not Path("/proc/self/task").exists():
            yield from _children_by_walk(pid)
        return
    for thread in threads:
        yield from map(int, _contents(f"/proc/{pid}/task/{thread}/children").split())


def _contents(path: str) -> bytes:
    """Return a small file of /proc, empty if the process has ended; half the time of `open`."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(file, 1 << 20)
    except OSError:
        return b""
    finally:
        os.close(file)


def _children_by_walk(pid: int) -> Iterator[int]:
    try:
        yield from (child.pid for child in psutil.Process(pid).children())
    except psutil.NoSuchProcess:
        return
