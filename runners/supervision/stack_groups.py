"""What stacks say about a stalled run: in which phase each rank is, and which rank is absent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from distrain.runners.protocol.events import Frame, Stacks
from distrain.runners.records.stall import RESPONDS_NOT

COLLECTIVE = "collective"
# The first entry of which a call is on the stack names the phase: part of a path, and functions.
_PHASES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (COLLECTIVE, "torch/distributed/distributed_c10d.py", ()),
    (COLLECTIVE, "torch/distributed/_functional_collectives.py", ()),
    (COLLECTIVE, "horovod/torch/mpi_ops.py", ()),
    # DDP compares and sends buffers and buckets in C++, before and after the forward pass.
    (COLLECTIVE, "torch/nn/parallel/distributed.py", ("_pre_forward", "_sync_buffers")),
    (
        COLLECTIVE,
        "torch/distributed/utils.py",
        ("_sync_module_states", "_verify_param_shape_across_processes"),
    ),
    ("data", "torch/utils/data/", ()),
    ("checkpoint", "torch/serialization.py", ()),
    ("checkpoint", "safetensors/", ()),
    ("checkpoint", "distrain/runners/training/checkpoint.py", ()),
    ("evaluation", "distrain/runners/training/evaluation.py", ()),
    ("backward", "torch/autograd/__init__.py", ("backward", "grad")),
    ("optimizer", "torch/optim/", ("step", "wrapper")),
    ("forward", "torch/nn/modules/module.py", ()),
    ("start", "importlib/_bootstrap", ()),
    ("exit", "threading.py", ("_shutdown",)),
)
_LIBRARIES = ("/site-packages/", "/lib/python3", "distrain/runners/", "distrain/models/")
_MAY_WAIT = (COLLECTIVE, "backward", "optimizer")  # where a rank may wait for others


def main_frames(stacks: Stacks) -> list[Frame]:
    """Return the calls of the main thread, the innermost one last."""
    return stacks.threads[0].frames if stacks.threads else []


def users_call(frames: list[Frame]) -> str:
    """Return the innermost call in code that belongs to neither Python, torch nor distrain."""
    for frame in reversed(frames):
        is_users = not frame.file.startswith("<") and not any(p in frame.file for p in _LIBRARIES)
        if is_users:
            return f"{Path(frame.file).name}:{frame.line} in {frame.function}"
    return ""


def phase_of(frames: list[Frame]) -> str:
    """Return the phase in which a thread is; empty where its calls do not tell."""
    for phase, path, functions in _PHASES:
        for frame in frames:
            if path in frame.file and (not functions or frame.function in functions):
                return phase
    return ""


def find_absent(phases: Mapping[int, str], steps: Mapping[int, int]) -> list[int]:
    """Return the ranks that the others wait for; all ranks if they cannot be told apart.

    `phases` are those of all ranks that have not ended, `steps` their last ones.
    """
    ranks = sorted(phases)
    behind = min((steps.get(rank, 0) for rank in ranks), default=0)
    for candidates in (
        [rank for rank in ranks if phases[rank] in RESPONDS_NOT],
        [rank for rank in ranks if phases[rank] not in _MAY_WAIT],
        [rank for rank in ranks if phases[rank] != COLLECTIVE],
        [rank for rank in ranks if steps.get(rank, 0) == behind],
    ):
        if candidates and len(candidates) < len(ranks):
            return candidates
    return ranks


def describe_others(phases: Mapping[int, str], absent: list[int]) -> str:
    """Return where the ranks that are not absent wait, by the most frequent phase."""
    others = Counter(phase for rank, phase in phases.items() if rank not in absent)
    return others.most_common(1)[0][0] if others else ""
