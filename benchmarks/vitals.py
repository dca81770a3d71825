"""Memory, descriptors, threads and children of processes over a long time, and their growth."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import combinations
from statistics import median
from typing import NamedTuple

import psutil

MOST_POINTS = 300  # of which a slope is computed: there are as many pairs as the square


class Vitals(NamedTuple):
    """What a process holds at a Unix time: memory in MB, and how many of what else."""

    time: float
    rss: float
    uss: float
    descriptors: int
    threads: int
    children: int

    @classmethod
    def of(cls, process: psutil.Process) -> Vitals:
        """Raises psutil.NoSuchProcess."""
        with process.oneshot():
            memory = process.memory_full_info()
            return cls(
                time.time(),
                memory.rss / 2**20,
                memory.uss / 2**20,
                process.num_fds(),
                process.num_threads(),
                len(process.children(recursive=True)),
            )


class Growth(NamedTuple):
    """How a quantity changes after `settled`: medians of the first and of the last fifth.

    `percent` is the change between them, `hourly` the Theil-Sen slope in percent of the first
    one per hour: the median of the slopes between all pairs of points (Sen 1968).
    """

    early: float
    late: float
    percent: float
    hourly: float

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]], settled: float) -> Growth | None:
        """Return the growth of (time, value) points; None for fewer than five after `settled`."""
        points = [point for point in points if point[0] >= settled]
        if len(points) < 5:
            return None
        fifth = len(points) // 5
        early = median(value for _, value in points[:fifth])
        late = median(value for _, value in points[-fifth:])
        thinned = points[:: len(points) // MOST_POINTS + 1]
        slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(thinned, 2)]
        base = early or 1.0
        return cls(early, late, 100 * (late - early) / base, 100 * 3600 * median(slopes) / base)
