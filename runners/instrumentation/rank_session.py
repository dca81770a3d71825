"""A rank of a script, from inside its program: what it reports and what it can ask.

Steps, seconds and values are collected in windows, as those of the training loop: in a step
nothing is sent unless the last window was sent long ago. Values and times of a GPU are read one
window later.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from threading import get_ident
from typing import Any

from distrain.runners.distributed.timing import PendingReading
from distrain.runners.instrumentation import problems
from distrain.runners.instrumentation.delayed_call import DelayedCall
from distrain.runners.instrumentation.hook_results import Automatic
from distrain.runners.instrumentation.logged_values import LoggedValues, copy_value, is_ready_by
from distrain.runners.instrumentation.loop_events import OWN_STEP
from distrain.runners.instrumentation.plain_values import (
    in_parts,
    require_mapping,
    to_name,
    to_setting,
    to_step,
)
from distrain.runners.instrumentation.script_stop import ScriptStop
from distrain.runners.instrumentation.sources import LOG_CALLS, TRACKED, Sources
from distrain.runners.instrumentation.step_counter import BATCHES, CALLS, OPTIMIZER
from distrain.runners.instrumentation.training_loop import TrainingLoop
from distrain.runners.protocol.events import (
    PHASES,
    Event,
    RankEvaluation,
    ScriptSettings,
    Window,
)
from distrain.runners.protocol.reporter import NullReporter, Reporter

# Steps and values are held back until it is known what the steps are, but no longer than this.
HELD_S = 10.0
HELD_BATCHES = 32  # fewer may be those of the first step
LEAST_SECONDS = 1e-9
LATER_S = 1.0  # after which values are sent, if no call has sent them
FAILED_DEVICE_S = 1.0  # to wait for the device of a program that has failed, which may be stuck
# A message with so many of them, of the greatest length, still fits into a line.
MOST_METRICS = 500
SETTINGS_PER_MESSAGE = 40
MOST_SETTINGS = 1_000


@dataclass
class _ClosedWindow:
    """A window whose times may still be on their way from the device."""

    time: float
    step: int
    steps: int
    samples: int | None
    lr: float | None
    warmup: bool
    reading: PendingReading
    skipped: list[Any]


class RankSession:
    """Counts steps, measures phases, collects what is logged, and sends it.

    `window_s` is the least time between two reports in seconds; the first `skip_steps` steps do
    not count for throughput. Gradients may be accumulated over several batches before the first
    step, so batches are not reported as steps at once.
    """

    def __init__(
        self,
        reporter: Reporter | NullReporter,
        rank: int,
        window_s: float = 0.1,
        skip_steps: int = 10,
        world_size: int = 1,
    ) -> None:
        self._reporter = reporter
        self.thread = get_ident()  # the one that trains
        self.rank = rank
        self.world_size = world_size
        self._window_s = window_s
        self._skip_steps = skip_steps
        self.loop = TrainingLoop()
        reporter.count_steps = lambda: self.steps  # by another thread: not earlier
        self.automatic = Automatic()
        self.sources = Sources()
        self.sources.named_phases = self.loop.named_phases
        self._logged = LoggedValues()
        self._closed: list[_ClosedWindow] = []
        self._held_until: float | None = None
        self._log_due = 0.0
        self._delayed_send = DelayedCall(self._send_later, LATER_S)
        self._evaluations = 0
        self.tracks = False  # the script names its training data: other loaders do not count
        self._left_steps = 0  # that were finished as the program left its loop
        self.stop = ScriptStop(reporter, rank)

    @property
    def steps(self) -> int:
        return self.loop.steps

    @property
    def activity(self) -> tuple[int, int, int]:
        """What changes with each step that the program goes on after, and each call that logs."""
        return self.steps - self._left_steps, self._logged.calls, self._evaluations

    # --- the training loop -------------------------------------------------------------------

    def begin_track(self) -> None:
        """Take the batches of a loop that begins for training data."""
        self.tracks = True
        self.automatic.begin_track()
        self.sources.loader = TRACKED

    def finish_batch(self) -> None:
        """Finish a tracked batch, which is a step unless the script makes others."""
        if self.loop.counter.kind <= BATCHES:
            self._note_step(BATCHES)
        else:
            self.loop.limit()

    def leave_batch(self) -> None:
        """Finish the last batch of a loop that the program leaves, as `sys.exit` does."""
        before = self.steps
        self.finish_batch()
        self._left_steps += self.steps - before

    def step(self, samples: int | None = None) -> None:
        """Finish a step of this many samples; None: those of the batches since the last one."""
        if samples is not None:
            self.sources.samples_are_given = True
        self._note_step(CALLS, samples)

    def _note_step(self, kind: int, samples: int | None = None) -> None:
        loop = self.loop
        loop.note((OWN_STEP, None, loop.stamp(), (kind, samples)))
        self.end_step(kind)

    def end_step(self, kind: int, times: int = 1) -> None:
        """Count so many steps of this kind; replay what was noted if a report is due."""
        loop = self.loop
        counter = loop.counter
        if kind == loop.certain_kind:
            loop.noted_steps += times
            if time.perf_counter() < loop.due:
                return
        loop.replay()
        if kind > self.sources.kind:
            if not counter.has_reported:
                self._logged.restart()
            self.sources.kind = kind
        self.stop.note_steps(counter.steps)
        self._send_facts()
        is_due = self.loop.timer.elapsed() >= self._window_s or counter.steps == self._skip_steps
        if is_due and not self._is_held():
            self._close_window()
            self._send_logged()

    def _is_held(self) -> bool:
        """Return whether it may still turn out that the steps of the program are others."""
        counter = self.loop.counter
        is_certain = counter.kind == CALLS or not (counter.kind or self.tracks)
        if is_certain and not counter.is_in_doubt:
            return False
        now = time.perf_counter()
        if self._held_until is None:
            self._held_until = now + HELD_S
        if now >= self._held_until:
            return False
        if counter.is_in_doubt:
            return True
        if counter.kind == OPTIMIZER:  # a call of `step` may follow it
            return counter.steps < 2
        return counter.steps < HELD_BATCHES or self.automatic.expects_step()

    def _close_window(self) -> None:
        counter = self.loop.counter
        if counter.unreported and (reading := self.loop.timer.close()):
            steps, samples = counter.take()
            is_known = counter.samples_are_known
            self._closed.append(
                _ClosedWindow(
                    time=time.time(),
                    step=counter.steps,
                    steps=steps,
                    samples=samples if is_known else None,
                    lr=_read_rate(self.loop.rate),
                    warmup=counter.steps - steps < self._skip_steps,
                    reading=reading,
                    skipped=self.automatic.skipped,
                )
            )
            self.automatic.skipped = []
            self.sources.samples_are_known = is_known if counter.has_batches else None
            if counter.steps >= self._skip_steps and not counter.is_behind:
                self.loop.due = time.perf_counter() + self._window_s
        self._send_closed()

    def _send_closed(self, until: float = 0.0) -> None:
        while self._closed and is_ready_by(until, self._closed[0].reading):
            self._send_window(self._closed.pop(0))

    def _send_window(self, closed: _ClosedWindow) -> None:
        reading = closed.reading.get()
        phases = {phase: reading.phases[phase] for phase in PHASES}
        overlap = self._add_communication(phases, closed.steps)
        self.sources.note_window(phases, closed.lr)
        self._send_settings()
        self._send(
            Window(
                time=closed.time,
                rank=self.rank,
                epoch=0,
                step=closed.step,
                steps=closed.steps,
                samples=closed.samples or 0,
                loss_sum=None,
                loss_min=None,
                loss_max=None,
                lr=closed.lr,
                seconds=max(reading.seconds, LEAST_SECONDS),
                overlap=overlap,
                skipped=sum(bool(flag) for flag in closed.skipped),
                warmup=closed.warmup or closed.samples is None,
                **phases,
            )
        )

    def _add_communication(self, phases: dict[str, float], steps: int) -> float:
        """Take what is known of the communication out of backward, and return the overlap."""
        try:
            found = self.automatic.communication()
        except Exception:  # the window is more important
            problems.print_first()
            found = None
        if found is None:
            return 0.0
        # Some backward passes may send nothing, and the step that was timed may be a slow one.
        waited = min(found.waited * steps, found.share * phases["backward"])
        phases["backward"] -= waited
        phases["comm"] += waited
        return min(found.overlap * steps, phases["backward"])

    # --- values ------------------------------------------------------------------------------

    def log(self, values: Mapping[str, Any], step: int | None = None, source: str = "") -> None:
        """Keep values by name; `step` is where they are drawn, by default the current step.

        `source` is the function that the script has called to log them, if not `distrain.log`.
        """
        require_mapping(values, "the values of log")
        loop = self.loop
        counter = loop.counter
        is_given = step is not None
        if step is not None:
            step = to_step(step)
        elif counter.kind or (loop.events.others and self._expects_steps()):
            step = counter.steps + loop.noted_steps
        else:  # no step is counted
            step = self._logged.calls + 1
        self._logged.add(values, step, source, is_given)
        if time.perf_counter() >= self._log_due and not self._is_held():
            self._send_logged()
        else:
            self._delayed_send.set()

    def _send_later(self) -> None:
        """Send what was logged last: the next step or value may come much later."""
        if self._is_held():
            self._delayed_send.set()
        # A tensor belongs to the stream of its thread. While that captures a CUDA graph, a question
        # of another thread, such as whether a copy is ready, would end the capture.
        elif self._logged.are_numbers:
            self._send_logged()

    def _expects_steps(self) -> bool:
        """Return whether what was noted so far may belong to the first step."""
        return self.tracks or self.automatic.expects_step()

    def _send_logged(self, until: float = 0.0) -> None:
        self._log_due = time.perf_counter() + self._window_s
        for event in self._logged.take(self.rank, until):
            self._send(event)
        self.sources.values = [source or LOG_CALLS for source in self._logged.sources]
        self._send_settings()

    def begin_stage(self) -> None:
        """Keep the steps so far, if the script reports its steps from now on itself."""
        self.loop.replay()
        self.loop.counter.begin_stage()

    def log_evaluation(self, metrics: Mapping[str, Any], samples: int, reduced: bool) -> None:
        """Report this rank's share of an evaluation, or with `reduced` that of all ranks."""
        require_mapping(metrics, "the metrics of log_eval")
        self._evaluations += not reduced
        if len(metrics) > MOST_METRICS:
            problems.print_first(f"more than {MOST_METRICS} metrics", is_exception=False)
        self._send(
            RankEvaluation(
                time=time.time(),
                rank=self.rank,
                number=0 if reduced else self._evaluations,
                step=self.steps,
                samples=int(samples),
                metrics={
                    to_name(name): float(copy)
                    for name, value in islice(metrics.items(), MOST_METRICS)
                    if (copy := copy_value(name, value)) is not None
                },
                reduced=reduced,
            )
        )

    def describe(self, config: Mapping[str, Any]) -> None:
        """Report the settings of the script; what is neither a number nor None becomes text."""
        require_mapping(config, "the config of init")
        if len(config) > MOST_SETTINGS:
            problems.print_first(f"more than {MOST_SETTINGS:,} settings", is_exception=False)
        settings = [(to_name(name), to_setting(value)) for name, value in config.items()]
        for part in in_parts(settings[:MOST_SETTINGS], SETTINGS_PER_MESSAGE):
            self._send_settings(dict(part))

    def _send_settings(self, config: dict[str, Any] | None = None) -> None:
        """Report settings, and where the figures come from if that has changed."""
        if self.sources.take_change() or config is not None:
            self._send(
                ScriptSettings(
                    time=time.time(),
                    rank=self.rank,
                    config=config or {},
                    sources=self.sources.known(),
                    missing=self.sources.missing(),
                )
            )

    def _send_facts(self, *, at_end: bool = False) -> None:
        try:
            if (facts := self.automatic.facts(self.steps, at_end)) is not None:
                self._send(facts)
        except Exception:  # the window is more important
            problems.print_first()

    def _send(self, event: Event) -> None:
        self._reporter.send(event)

    # --- the end -----------------------------------------------------------------------------

    def should_stop(self) -> bool:
        """Return whether to leave the training loop. Once True, it stays so."""
        return self.stop.ask(self.steps)

    def end(self, *, has_failed: bool) -> None:
        """Send everything at the end of a program. The last batch may be a step."""
        counter = self.loop.counter
        if not has_failed and self.tracks:
            self.loop.replay()
            if counter.kind <= BATCHES and counter.has_unfinished_batch:
                counter.finish_step(BATCHES)
        self.flush(has_failed=has_failed)

    def flush(self, *, has_failed: bool = False) -> None:
        """Send what there is so far.

        The device of a program that `has_failed` may be unusable, or wait for other ranks forever.
        """
        self._delayed_send.cancel()
        until = time.monotonic() + FAILED_DEVICE_S if has_failed else math.inf
        for part in (
            self.loop.replay,
            self.loop.timer.stop,
            self._close_window,
            partial(self._send_closed, until),
            partial(self._send_facts, at_end=True),
            self._send_settings,
            partial(self._send_logged, until),
        ):
            try:
                part()
            except Exception:  # the other parts are sent nevertheless
                if not has_failed:
                    problems.print_first()


def _read_rate(rate: Any) -> float | None:
    """Return a learning rate; None where reading it would wait for a device."""
    return None if rate is None or getattr(rate, "is_cuda", False) else float(rate)
