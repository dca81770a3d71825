"""Steps of optimizers: the one that stepped first makes the steps of the run.

Another one takes over once that is gone, or no longer steps: a script may have a second stage.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Iterator
from functools import lru_cache
from threading import get_ident
from time import perf_counter
from typing import Any

import wrapt
from torch import cuda
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
)

from distrain.runners.instrumentation import problems
from distrain.runners.instrumentation.automatic import hooked
from distrain.runners.instrumentation.loop_events import OPTIMIZER_STEP
from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.instrumentation.step_counter import OPTIMIZER

GRAPH = "the steps are replayed from a CUDA graph, where hooks see nothing; call distrain.step()"

# In a row, without a step of the counted optimizer: more than the rounds in which a network of two
# is often trained.
STEPS_TO_TAKE_OVER = 20


def _nothing() -> None:
    return None


_counted: Any = _nothing  # a weak reference to the counted optimizer
_usual: Any = _nothing  # the same, unless its steps may call each other
# Steps since the last counted one, of each optimizer that may take over.
_missed_steps: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
_counted_steps = 0  # steps of the run at that time
finished_steps = 0  # of all optimizers
_has_unseen_steps = False  # of other threads, or while nothing is observed
_has_optimizer = False  # one was made
_held: list[Optimizer] | None = None  # that have stepped within a function of a library


def install() -> None:
    register_optimizer_step_post_hook(_after_step)
    wrapt.register_post_import_hook(_wrap_state, "torch.distributed.checkpoint.state_dict")
    wrapt.register_post_import_hook(_wrap_engine, "deepspeed.runtime.engine")


def _wrap_state(module: Any) -> None:
    """Leave out the steps by which torch makes the state that a checkpoint is loaded into."""
    _hold_steps(module, "_init_optim_state", count_one=False)


def _wrap_engine(module: Any) -> None:
    """Count a step of DeepSpeed once, which may step the optimizer for each parameter group.

    Those by which it makes the state of the optimizer are left out.
    """
    engine = getattr(module, "DeepSpeedEngine", None)
    _hold_steps(engine, "_configure_optimizer", count_one=False)
    _hold_steps(engine, "_take_model_step", count_one=True)


def _hold_steps(owner: Any, name: str, *, count_one: bool) -> None:
    """Let the steps of optimizers within a function count as one step, or not at all."""
    function = getattr(owner, name, None)
    if function is None:  # another version of the library
        return

    @functools.wraps(function)
    def observe(*arguments: Any, **options: Any) -> Any:
        global _held
        if get_ident() != hooked.thread:
            return function(*arguments, **options)
        outer = _held
        _held = held = list[Optimizer]()
        try:
            return function(*arguments, **options)
        finally:
            _held = outer
            if count_one and held:
                _after_step(held[0], (), {})

    setattr(owner, name, observe)


def attach(session: RankSession) -> None:
    """Count the steps of the optimizer that steps first from now on."""
    global _counted, _usual
    _counted = _usual = _nothing
    _missed_steps.clear()
    session.automatic.expects_step = _expects_step


def _after_step(optimizer: Any, arguments: Any, options: Any) -> None:
    """Note a step, with few steps of our own in the usual case: it may be a short one."""
    global finished_steps, _has_unseen_steps
    if get_ident() != hooked.thread:
        _has_unseen_steps = True
        return
    if _held is not None:
        _held.append(optimizer)
        return
    if _usual() is not optimizer and _may_nest(optimizer.__class__) and _is_nested(optimizer):
        return
    finished_steps += 1
    try:
        loop = hooked.loop
        now = perf_counter()
        if _usual() is optimizer and now < loop.due and not hooked.uses_cuda:
            hooked.events.note_step(now, optimizer.param_groups[0].get("lr"))
            if loop.certain_kind == OPTIMIZER:
                loop.noted_steps += 1
        elif not is_recorded():
            count_step(optimizer)
    except Exception:
        problems.print_first()


@lru_cache(maxsize=16)
def _may_nest(kind: type[Any]) -> bool:
    """Return whether the steps of a type and of a base may run hooks, as with Horovod.

    Those of the base do once an optimizer of that type was made, which may be later.
    """
    return sum("step" in vars(each) for each in kind.__mro__ if each is not Optimizer) > 1


def _is_nested(optimizer: Optimizer) -> bool:
    """Return whether a `step` that has called the one that ends goes on: that one is the step.

    The frames are searched, as no hook runs where a step raises.
    """
    frame = ending = sys._getframe(2)  # torch's function around `step`, which runs the hooks
    while outer := frame.f_back:
        if outer.f_code is ending.f_code and outer.f_locals.get("self") is optimizer:
            return True
        frame = outer
    return False


def count_step(optimizer: Optimizer) -> None:
    """Finish a step of an optimizer, which counts if that is the counted one or takes over."""
    session = hooked.session
    loop = session.loop
    if _counted() is optimizer:
        steps = 1
        if _missed_steps:  # loop.steps stays the same where the script's own calls count
            _missed_steps.clear()
    else:
        steps = _take_over(optimizer)
    rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
    loop.note((OPTIMIZER_STEP, None, loop.stamp(), (steps, rate, id(optimizer))))
    if steps:
        session.end_step(OPTIMIZER, steps)
    else:
        loop.limit()


def _take_over(optimizer: Optimizer) -> int:
    """Count an optimizer from now on if the one before is gone or no longer steps.

    Return how many of its last steps count by that; 0 if it is not counted, or a CUDA graph is
    recorded.
    """
    global _counted, _usual
    session = hooked.session
    others = session.sources.others
    name = type(optimizer).__name__
    steps = _steps_in_a_row(optimizer)
    if _counted() is not None and steps < STEPS_TO_TAKE_OVER:
        if name not in others:
            others.append(name)
        return 0
    if name in others:
        others.remove(name)
    _counted = weakref.ref(optimizer)
    kind: Any = type(optimizer)
    _usual = _nothing if _may_nest(kind) else _counted
    session.sources.optimizer = name
    device = _device_of(optimizer)
    if device is not None and device.type == "cuda" and not hooked.uses_cuda:
        hooked.use_cuda(device.index)
        return 0 if is_recorded() else steps
    return steps


def _steps_in_a_row(optimizer: Optimizer) -> int:
    """Return how many steps an optimizer has made, with this one, while none counted."""
    global _counted_steps
    if _counted_steps != hooked.loop.steps:
        _missed_steps.clear()
        _counted_steps = hooked.loop.steps
    _missed_steps[optimizer] = steps = _missed_steps.get(optimizer, 0) + 1
    return steps


def count_finished() -> int:
    """Return how many steps all optimizers have finished, also within a function of a library."""
    return finished_steps + len(_held or ())


def is_counted(optimizer: Optimizer) -> bool:
    return _counted() is optimizer


def is_seen(optimizer: Optimizer) -> bool:
    """Return whether hooks see the steps of an optimizer: not those of a mere wrapper.

    Its type tells: an optimizer may have a `step` of its own that calls that one, as Accelerate's.
    """
    return hasattr(getattr(type(optimizer), "step", None), "hooked")


def is_recorded() -> bool:
    """Return whether a CUDA graph is being recorded: nothing is computed, and replays are unseen.

    Nothing is observed then from now on.
    """
    if not hooked.uses_cuda or not cuda.is_current_stream_capturing():
        return False
    hooked.session.sources.lose(GRAPH)
    hooked.end()
    return True


def _device_of(optimizer: Optimizer) -> Any:
    return next((p.device for group in optimizer.param_groups for p in group["params"]), None)


def _expects_step() -> bool:
    """Return whether some optimizer was made whose steps will be seen."""
    return hooked.thread != hooked.NO_THREAD and not _has_unseen_steps and _was_made()


def is_idle() -> bool:
    """Return whether some optimizer was made, and none has stepped in this process."""
    return _was_made() and not finished_steps and not _has_unseen_steps


def _was_made() -> bool:
    """Return whether some optimizer was made: its class prepares `step` for hooks then."""
    global _has_optimizer
    if not _has_optimizer:
        _has_optimizer = any(getattr(each.step, "hooked", False) for each in _kinds(Optimizer))
    return _has_optimizer


def _kinds(of: type[Optimizer]) -> Iterator[type[Optimizer]]:
    for kind in of.__subclasses__():
        yield kind
        yield from _kinds(kind)
