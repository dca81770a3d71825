"""Horovod on this machine: whether it can be used, and how it is installed.

Horovod 0.28.1 is the last release and does not build with current versions of torch as it is.
`presence` finds out whether an installed Horovod works. `source` has the patches that it needs,
`toolchain` what the machine has to build it with, `build` makes the wheel, and `install` does all
of it. Nothing here imports Horovod or torch; only subprocesses do.
"""

from __future__ import annotations

from distrain.runners.horovod.presence import FIX, problem, problems
from distrain.runners.horovod.source import VERSION

__all__ = ["FIX", "VERSION", "problem", "problems"]
