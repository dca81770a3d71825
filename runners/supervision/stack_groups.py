"""What stacks say about a stalled run: in which phase each rank is, and which rank is absent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

from distrain.runners.protocol.events import Frame, Stacks
from distrain.runners.records.stacks import is_library
from distrain.runners.records.stall import RankPhase, RankPosition

# The first entry of which a call is on the stack names the phase: part of a path, and functions.
_PHASES: tuple[tuple[RankPhase, str, tuple[str, ...]], ...] = (
    (RankPhase.COLLECTIVE, "torch/distributed/distributed_c10d.py", ()),
    (RankPhase.COLLECTIVE, "torch/distributed/_functional_collectives.py", ()),
    (RankPhase.COLLECTIVE, "horovod/torch/mpi_ops.py", ()),
    # DDP compares and sends buffers and buckets in C++, before and after the forward pass.
    (RankPhase.COLLECTIVE, "torch/nn/parallel/distributed.py", ("_pre_forward", "_sync_buffers")),
    (
        RankPhase.COLLECTIVE,
        "torch/distributed/utils.py",
        ("_sync_module_states", "_verify_param_shape_across_processes"),
    ),
    # torch.compile: code that it has compiled runs without these calls.
    (RankPhase.COMPILATION, "torch/_dynamo/convert_frame.py", ()),
    (RankPhase.COMPILATION, "torch/_inductor/compile_fx.py", ("compile_fx_inner",)),
    (RankPhase.DATA, "torch/utils/data/", ()),
    (RankPhase.CHECKPOINT, "torch/serialization.py", ()),
    (RankPhase.CHECKPOINT, "safetensors/", ()),
    (RankPhase.CHECKPOINT, "distrain/runners/training/checkpoint.py", ()),
    # Before a file is written, hooks of the user's gather its content, or restore it.
    (RankPhase.CHECKPOINT, "distrain/runners/training/training_state.py", ("save",)),
    (RankPhase.CHECKPOINT, "torch/nn/modules/module.py", ("state_dict", "load_state_dict")),
    (RankPhase.CHECKPOINT, "torch/optim/optimizer.py", ("state_dict", "load_state_dict")),
    (RankPhase.EVALUATION, "distrain/runners/training/evaluation.py", ()),
    (RankPhase.BACKWARD, "torch/autograd/__init__.py", ("backward", "grad")),
    (RankPhase.OPTIMIZER, "torch/optim/", ("step", "wrapper")),
    (RankPhase.FORWARD, "torch/nn/modules/module.py", ()),
    (RankPhase.DATA, "distrain/runners/training/loading.py", ()),
    (RankPhase.DATA, "distrain/runners/training/batch_mover.py", ()),
    (RankPhase.DATA, "distrain/runners/training/loader_processes.py", ()),
    (RankPhase.DATA, "distrain/runners/training/loader_wait.py", ()),
    (RankPhase.FORWARD, "distrain/runners/training/loop.py", ("_step",)),
    (RankPhase.GPU, "torch/cuda/", ("synchronize",)),
    (RankPhase.EXIT, "threading.py", ("_shutdown",)),
)
_IMPORT = "<frozen importlib"
# Where a rank may wait for others.
MAY_WAIT = (RankPhase.COLLECTIVE, RankPhase.BACKWARD, RankPhase.OPTIMIZER, RankPhase.GPU)


def main_frames(stacks: Stacks) -> list[Frame]:
    """Return the calls of the main thread, the innermost one last."""
    return stacks.threads[0].frames if stacks.threads else []


def users_call(frames: list[Frame]) -> str:
    """Return the innermost call in code that belongs to neither Python, torch nor distrain."""
    for frame in reversed(frames):
        if not is_library(frame.file):
            return f"{Path(frame.file).name}:{frame.line} in {frame.function}"
    return ""


def phase_of(frames: list[Frame]) -> str:
    """Return the phase in which a thread is; empty where its calls do not tell.

    What an import calls counts as the start, unless it is itself the call of a phase.
    """
    imports = [index for index, frame in enumerate(frames) if _IMPORT in frame.file]
    frames = frames[imports[-1] + 1 :] if imports else frames
    for phase, path, functions in _PHASES:
        for frame in frames:
            if path in frame.file and (not functions or frame.function in functions):
                return phase
    return RankPhase.START if imports else ""


def phase_of_rank(stacks: Stacks) -> str:
    """Return the phase in which a rank is: that of its main thread.

    For a GPU, torch runs the backward pass in another thread, which also compiles it.
    """
    phase = phase_of(main_frames(stacks))
    others = (phase_of(each.frames) for each in stacks.threads[1:])
    is_compiling = phase == RankPhase.BACKWARD and RankPhase.COMPILATION in others
    return RankPhase.COMPILATION if is_compiling else phase


def are_computing(positions: Iterable[RankPosition], busy: Collection[int]) -> bool:
    """Return whether ranks that do not wait for others use the CPU, as an evaluation does."""
    return any(
        each.rank in busy and not each.collective and each.phase not in MAY_WAIT
        for each in positions
    )


def find_absent(positions: Collection[RankPosition], behind: Collection[int]) -> list[int]:
    """Return the ranks that the others wait for; all ranks if they cannot be told apart.

    `behind` are those that have not begun a collective in which others wait.
    """
    last = min((each.step for each in positions), default=0)
    for absent in (
        [each.rank for each in positions if each.condition],
        # With several process groups, a rank that is behind in one may wait in another.
        [each.rank for each in positions if each.rank in behind and not _waits(each)],
        [each.rank for each in positions if each.rank in behind],
        [each.rank for each in positions if each.phase not in MAY_WAIT],
        [each.rank for each in positions if each.phase != RankPhase.COLLECTIVE],
        [each.rank for each in positions if each.step == last],
    ):
        if 0 < len(absent) < len(positions):
            return absent
    return [each.rank for each in positions]


def _waits(position: RankPosition) -> bool:
    """Return whether a rank waits in a collective, and does not only overlap it with other code."""
    is_pending = bool(position.collective) and position.phase in MAY_WAIT
    return is_pending or position.phase == RankPhase.COLLECTIVE


def describe_others(positions: Iterable[RankPosition], absent: Collection[int]) -> str:
    """Return where the ranks that are not absent wait, by the most frequent phase."""
    others = Counter(each.phase for each in positions if each.rank not in absent)
    return others.most_common(1)[0][0] if others else ""
