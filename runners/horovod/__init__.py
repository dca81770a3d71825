"""Horovod on this machine: whether it can be used (`presence`), and how it comes to be here.

Horovod 0.28.1 is the last release and does not build on a current torch as it is. `source` holds
the edits that it needs, `toolchain` what the machine has to build it with, `building` makes the
wheel and `install` does all of it. Nothing here imports Horovod or torch: only subprocesses do.
"""

from __future__ import annotations

from runners.horovod.presence import FIX, problem, problems
from runners.horovod.source import VERSION

__all__ = ["FIX", "VERSION", "problem", "problems"]
