"""A rank of a script, from inside its program: what it reports and what it can ask.

Values are collected in windows, as those of the training loop: in a step nothing is sent unless the
last window was sent long ago. Values on a device are read one window later.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from distrain.runners.instrumentation.logged_values import LoggedValues
from distrain.runners.protocol.events import (
    RankEvaluation,
    ScriptSettings,
    StopSupport,
    Window,
)
from distrain.runners.protocol.reporter import NullReporter, Reporter

Batch = TypeVar("Batch")
# Nothing is reported before so many batches or seconds, as `step` may not have been called yet.
HELD_STEPS = 32
HELD_S = 10.0
STEP_CALLS = "distrain.step()"
UNKNOWN = ""  # the source of a figure that some batch does not have
FIRST_DIMENSION = "the first dimension of the batches"
TRACKED_BATCHES = "batches of distrain.track()"


class RankSession:
    """Counts steps and samples, and collects what is logged.

    A step is a call of `step`; where there is none, a batch of `track`. Gradients may be
    accumulated over several batches before the first call, so batches are not reported at once.
    `window_s` is the least time between two reports in seconds; the first `skip_steps` steps do
    not count for throughput.
    """

    def __init__(
        self,
        reporter: Reporter | NullReporter,
        rank: int,
        window_s: float = 0.1,
        skip_steps: int = 10,
    ) -> None:
        self._reporter = reporter
        self._rank = rank
        self._window_s = window_s
        self._skip_steps = skip_steps
        self._logged = LoggedValues()
        self._sources: dict[str, str] = {}
        self._samples_source: str | None = None
        self._counts_batches = True  # as steps, because `step` was never called
        self._evaluations = 0
        self.steps = 0
        self.stop_calls = 0
        self.is_stopped = False
        self._began: float | None = None  # the open window, unless it is paused
        self._held_until: float | None = None
        self._last_report = 0.0
        self._reset_window()

    def _reset_window(self) -> None:
        self._window_steps = 0
        self._samples: int | None = 0
        self._seconds = 0.0  # before the last pause
        self._data_s = 0.0
        self._pending: int | None = 0  # samples of the step that is not finished

    # --- steps -----------------------------------------------------------------------------

    def step(self, samples: int | None = None) -> None:
        """Finish a step of this many samples; None: those of the batches since the last one."""
        if self._counts_batches:
            if self._is_held():
                self._forget_steps()
            self._counts_batches = False
            self._note_source("steps", STEP_CALLS)
        if samples is not None:
            self._pending = samples
            if self._samples_source != STEP_CALLS:
                self._note_samples(STEP_CALLS)
        self._finish_step(time.perf_counter())

    def track(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches of a loader, and measure the wait for each.

        The time between the end of a loader and the next one belongs to no window: the program may
        evaluate or save.
        """
        batches = iter(loader)
        is_first = True
        while True:
            asked = time.perf_counter()
            if self._began is None:
                self._began = asked
            if self._held_until is None:
                self._held_until = asked + HELD_S
            if not is_first and self._counts_batches:
                self._finish_batch(asked)
            try:
                batch = next(batches)
            except StopIteration:
                self._pause(time.perf_counter())
                return
            self._data_s += time.perf_counter() - asked
            is_first = False
            self._add_samples(count_samples(batch))
            try:
                yield batch
            except GeneratorExit:  # the program has left the loop
                now = time.perf_counter()
                if self._counts_batches:
                    self._finish_batch(now)
                self._pause(now)
                raise

    def _finish_batch(self, now: float) -> None:
        """Count a batch as a step, because the program has not counted any itself."""
        if not self.steps:
            self._note_source("steps", TRACKED_BATCHES)
        self._finish_step(now)

    def _pause(self, now: float) -> None:
        if self._began is not None:
            self._seconds += now - self._began
            self._began = None

    def _is_held(self) -> bool:
        """Return whether it may still turn out that batches are not the steps of the program."""
        if self._held_until is None or not self._counts_batches:
            return False
        return self.steps < HELD_STEPS and time.perf_counter() < self._held_until

    def _forget_steps(self) -> None:
        """Take batches that were counted as steps, but not reported, for parts of this step."""
        is_known = self._samples is not None and self._pending is not None
        self._pending = self._samples + self._pending if is_known else None  # type: ignore[operator]
        self._samples = 0
        self._window_steps = 0
        self.steps = 0
        self._logged.restart()

    def _add_samples(self, samples: int | None) -> None:
        if samples is not None and self._pending is not None:
            self._pending += samples
            if self._samples_source is None:
                self._note_samples(FIRST_DIMENSION)
            return
        self._pending = None
        if self._samples_source != STEP_CALLS:
            self._note_samples(UNKNOWN)  # a total without this batch would be wrong

    def _finish_step(self, now: float) -> None:
        if self._began is None:  # the time of the first step is unknown
            self._began = now
        self.steps += 1
        self._window_steps += 1
        is_known = self._samples is not None and self._pending is not None
        self._samples = self._samples + self._pending if is_known else None  # type: ignore[operator]
        self._pending = 0
        is_warm = self.steps == self._skip_steps
        is_due = now - self._began >= self._window_s or is_warm
        if is_due and not self._is_held():
            self._close_window(now)
            self._send_logged()

    def _close_window(self, now: float) -> None:
        if not self._window_steps:
            return
        is_open = self._began is not None
        self._pause(now)
        samples = self._samples
        if not self._samples_source:
            samples = None
        self._reporter.send(
            Window(
                time=time.time(),
                rank=self._rank,
                epoch=0,
                step=self.steps,
                steps=self._window_steps,
                samples=samples or 0,
                loss_sum=None,
                loss_min=None,
                loss_max=None,
                lr=None,
                seconds=max(self._seconds, 1e-9),
                data=self._data_s,
                warmup=self.steps <= self._skip_steps or samples is None,
            )
        )
        self._reset_window()
        self._began = now if is_open else None

    # --- values ----------------------------------------------------------------------------

    def log(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Keep values by name; `step` is where they are drawn, by default the current step."""
        self._logged.add(values, self._x(step))
        is_due = time.perf_counter() - self._last_report >= self._window_s
        if is_due and not self._is_held():
            self._send_logged()

    def _x(self, step: int | None) -> int:
        if step is not None:
            return int(step)
        is_counted = self._sources or self._began is not None
        return self.steps if is_counted else self._logged.calls + 1

    def _send_logged(self, *, wait: bool = False) -> None:
        self._last_report = time.perf_counter()
        for event in self._logged.take(self._rank, wait=wait):
            self._reporter.send(event)

    def log_evaluation(self, metrics: Mapping[str, Any], samples: int, reduced: bool) -> None:
        """Report this rank's share of an evaluation, or with `reduced` that of all ranks."""
        self._evaluations += 1
        self._reporter.send(
            RankEvaluation(
                time=time.time(),
                rank=self._rank,
                number=self._evaluations,
                step=self.steps,
                samples=int(samples),
                metrics={str(name): float(value) for name, value in metrics.items()},
                reduced=reduced,
            )
        )

    def describe(self, config: Mapping[str, Any]) -> None:
        """Report the settings of the script; values that JSON has no form for become text."""
        self._send_settings({str(key): _plain(value) for key, value in config.items()})

    def _note_samples(self, source: str) -> None:
        if self._samples_source != source:
            self._samples_source = source
            self._note_source("samples", source)

    def _note_source(self, figure: str, source: str) -> None:
        self._sources[figure] = source
        self._send_settings({})

    def _send_settings(self, config: dict[str, Any]) -> None:
        self._reporter.send(
            ScriptSettings(
                time=time.time(), rank=self._rank, config=config, sources=dict(self._sources)
            )
        )

    # --- the end ---------------------------------------------------------------------------

    def should_stop(self) -> bool:
        """Return whether to leave the training loop. Once True, it stays so."""
        if self.is_stopped:
            return True
        self.stop_calls += 1
        if self.stop_calls == 1:
            self._reporter.send(StopSupport(rank=self._rank))
        self.is_stopped = not self._reporter.should_continue(self.stop_calls)
        return self.is_stopped

    def flush(self) -> None:
        """Send everything, at the end of the program."""
        self._close_window(time.perf_counter())
        self._send_logged(wait=True)


def count_samples(batch: Any) -> int | None:
    """Return dimension 0 of the first tensor in a batch; None where there is no such tensor."""
    if type(batch) in (tuple, list) and batch and (shape := getattr(batch[0], "shape", None)):
        return int(shape[0])  # the usual case, first because it is asked for in every step
    if isinstance(batch, Mapping):
        batch = [*batch.values()]
    if isinstance(batch, list | tuple):
        counts = (count_samples(part) for part in batch)
        return next((count for count in counts if count is not None), None)
    shape = getattr(batch, "shape", None)
    return int(shape[0]) if shape else None


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
