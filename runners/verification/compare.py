"""Compares the verification files of a run with the same computations in one plain process.

Runs as a process of its own, because it imports torch. Every compared step starts from the state of
the run, so a difference shows in the step in which it arises, and rounding does not accumulate:

1. the first step starts from the weights of the plain process, bit for bit;
2. the gradients of a step are those of the plain process at the same weights;
3. weights and optimizer after it are what the plain optimizer makes of these gradients;
4. nothing changes weights or optimizer between two steps.

If these hold for each step, the run computes what one process computes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from distrain.models.importing import make_importable, user_folders
from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.records.reader import Record
from distrain.runners.system.files import write_atomically
from distrain.runners.system.processes import die_with_parent
from distrain.runners.training.tap import Tensors, digest
from distrain.runners.training.tap_files import FOLDER, tap_file, weights_file
from distrain.runners.training.task_optimizer import base_rate, make_rate
from distrain.runners.verification.average import average_weights, recompute_statistics
from distrain.runners.verification.backward import Backward
from distrain.runners.verification.digests import (
    BETWEEN_STEPS,
    OF_RANKS,
    find_other_evaluation,
    find_unequal_states,
)
from distrain.runners.verification.evaluation import compare_evaluation
from distrain.runners.verification.gradients import ReferenceGradients
from distrain.runners.verification.probe import Probe
from distrain.runners.verification.reference import MicroBatch, PlainProcess
from distrain.runners.verification.result import RESULT_FILE, ReferenceComparison, VerificationCheck
from distrain.runners.verification.task_rules import check_task
from distrain.runners.verification.tolerance import (
    CPU_FACTOR,
    FACTOR,
    TOLERANCE,
    Limits,
    relative_errors,
)
from distrain.runners.verification.update import ExactUpdate
from distrain.runners.verification.update_check import StepOfRun, compare_update

UNEQUAL = "the ranks start from unequal states"
MAX_RATE_ERROR = 1e-6  # relative


def main() -> int:
    """Compare the run whose folder is the first argument; write the result into that folder."""
    die_with_parent()
    record = Record(sys.argv[1])
    plan = record.state.plan
    assert plan is not None
    torch.set_num_threads(plan.threads)
    make_importable(user_folders(record.config.code_dir))
    with suppress(RuntimeError):  # a task may ask for its rank, as in the run
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    comparison = ReferenceComparer(record.config, plan, record).compare()
    write_atomically(record.dir / FOLDER / RESULT_FILE, msgspec.json.encode(comparison))
    return 0


class ReferenceComparer:
    """Repeats the compared steps of a run in a plain process."""

    def __init__(self, config: RunConfig, plan: Plan, record: Record) -> None:
        self.config = config
        self.plan = plan
        self.record = record
        on_cpu = plan.devices[0].kind == "cpu"
        self.device = torch.device("cpu") if on_cpu else torch.device("cuda", 0)
        self._initial = self._tap(0, 0)
        self._plain = PlainProcess(config, plan, self.device)
        steps: list[int] = self._initial["steps"]
        lr = base_rate(config.train, plan, self._plain.own_rate)
        self._rate = make_rate(
            config.train, self._plain.task, lr, self._plain.epochs.steps, max(steps)
        )
        rates = [self._rate(step) for step in range(max(steps))]
        self._probe = Probe(self._plain)
        # Not of a schedule that depends on what the loss has found.
        self._has_plain_schedule = rates == [self._rate(step) for step in range(max(steps))]
        self._update = ExactUpdate(self._plain)
        self._gradients = ReferenceGradients(self._plain, self._probe)
        self.declared = [
            *self._gradients.declared,
            *self._probe.declarations(self._gradients.has_parts),
        ]
        self._limits = Limits(CPU_FACTOR if self._gradients.has_same_kernels else FACTOR)

    def compare(self) -> ReferenceComparison:
        checks = list(self._checks())
        return ReferenceComparison(checks=checks, declared=self.declared, tolerance=TOLERANCE)

    def _tap(self, rank: int, step: int) -> dict[str, Any]:
        path = tap_file(self.record.dir / FOLDER, rank, step)
        content: dict[str, Any] = torch.load(path, weights_only=True)
        return content

    def _before(self, rank: int, step: int) -> dict[str, Any]:
        """Return the state of a rank before a compared step."""
        state: dict[str, Any] = {} if step == 1 else self._tap(rank, step)["before"]
        return state or self._tap(rank, step - 1)

    def _checks(self) -> Iterator[VerificationCheck]:
        if self.config.strategy == "dp" and len(self.plan.devices) > 1 and self.declared:
            sys.exit(
                "BatchNorm and dropout cannot be verified with strategy dp on several GPUs: the "
                "plain process does not reproduce the replicas of nn.DataParallel"
            )
        if not self._has_plain_schedule:
            self.declared.append(
                "the schedule depends on more than the step: learning rates are those of the run"
            )
        if self._probe.has_random_metrics:
            self.declared.append(
                "the same samples have other metrics the second time (random numbers in "
                "evaluation, or statistics that move in evaluation): sums not compared"
            )
        yield from check_task(
            self._probe.exact or self._plain,
            has_plain_loss=self._probe.has_plain_loss,
            has_plain_metrics=not self._probe.has_random_metrics,
            has_random_samples=self._probe.has_random_samples,
        )
        weights, buffers = self._plain.state()
        yield self._compare_bits("initial weights", 0, "weights", weights)
        if buffers:
            yield self._compare_bits("initial buffers", 0, "buffers", buffers)
        yield from self._compare_steps()
        if self._plain.task.eval is not None:
            yield self._compare_evaluation()

    def _compare_evaluation(self) -> VerificationCheck:
        """Compare the evaluation after the last step."""
        last_step = max(self._initial["steps"])
        last, before_last = self._tap(0, last_step), self._before(0, last_step)
        self._plain.load(last["weights"], last["buffers"])
        others: dict[str, tuple[Tensors, Tensors]] = {}
        if self.config.train.ema or self.config.train.swa_share:
            others["of the last step, which are not averaged"] = last["weights"], last["buffers"]
            self._plain.load(self._average_weights(last_step), {})
        if self.config.train.swa_share:
            averaged = self._plain.state()
            others["of the average, whose running statistics are averaged too"] = averaged
            others["of an average that begins a step late"] = (
                self._average_weights(last_step, delay=1),
                {},
            )
            recompute_statistics(self._plain)
        return compare_evaluation(
            self._plain,
            self.record.evaluations()[-1],
            others
            | {
                "before the last step": (before_last["weights"], before_last["buffers"]),
                "at the start": (self._initial["weights"], self._initial["buffers"]),
            },
            counts_only=self._probe.has_random_metrics,
            of_ranks=find_other_evaluation(self.record.dir / FOLDER, self.plan.world_size),
        )

    def _average_weights(self, steps: int, delay: int = 0) -> Tensors:
        folder = self.record.dir / FOLDER
        files = (weights_file(folder, step) for step in range(1, steps + 1))
        later = (torch.load(path, weights_only=True) for path in files)
        scales_losses = self._plain.precision == "fp16"
        train = self.config.train
        return average_weights(
            self._plain.model,
            train,
            self._initial,
            later,
            steps,
            scales_losses=scales_losses,
            delay=delay,
        )

    # --- steps ------------------------------------------------------------------------------------

    def _compare_steps(self) -> Iterator[VerificationCheck]:
        """Compare the chosen steps, and what must hold at all steps up to the next of them."""
        epochs = self._initial["epochs"]
        parts = self.plan.world_size, self.config.train.accumulate
        apart = self._plain.steps(epochs, *parts)
        together = self._plain.steps(epochs, 1, 1)
        compared = set(self._initial["steps"])
        unequal = find_unequal_states(self.record.dir / FOLDER, self.plan.world_size)
        if 0 in unequal:
            yield unequal[0]
        for step, (pieces, whole) in enumerate(zip(apart, together, strict=True), 1):
            difference = unequal.get(step)
            if difference and difference.what == BETWEEN_STEPS:
                yield difference
            if step in compared:
                yield from self._compare_step(step, pieces, whole)
            if difference and difference.what == OF_RANKS:
                yield difference
        if not unequal:
            yield VerificationCheck(what=BETWEEN_STEPS, step=max(compared), passed=True)
            yield VerificationCheck(what=OF_RANKS, step=max(compared), passed=True)

    def _compare_step(
        self, step: int, pieces: list[MicroBatch], whole: list[MicroBatch]
    ) -> Iterator[VerificationCheck]:
        tap = self._tap(0, step)
        before = self._before(0, step)
        rate = self._rate_of_step(step, tap["rates"])
        yield _compare_rate(step, tap["rates"], [rate * scale for scale in self._update.scales])
        for process in (self._plain, self._probe.exact):
            if process is not None:
                process.begin(step)
        scale = float(tap["precision"].get("scale", 1.0))
        self._plain.load(before["weights"], before["buffers"])
        earlier = [self._before(rank, step) for rank in range(self.plan.world_size)]
        actual = tap.get("gradients", {})
        computed = self._gradients.compute(earlier, pieces, whole, scale, actual)
        # Losses are larger where shares of ranks are averaged than where they are added up, so near
        # the largest number of fp16 only one of the two overflows. Both are right.
        alike = [each for each in computed if self._overflows(each) == tap["skipped"]]
        if not alike:
            done, right = ("skipped", "taken") if tap["skipped"] else ("taken", "skipped")
            detail = f"the run has {done} the step, the plain process has {right} it"
            yield VerificationCheck(what="overflows", step=step, passed=False, detail=detail)
            return
        expected, *variants = alike
        if self._gradients.is_repeatable and not tap["skipped"]:
            found, wanted, *others = (
                self._gradients.without_approximated(step, each)
                for each in (tap["gradients"], *(each.gradients for each in alike))
            )
            if wanted:
                yield self._compare("gradients", step, found, wanted, others)
        used = None if tap["skipped"] else expected.gradients
        yield compare_update(self._update, StepOfRun(step, before, tap, rate, used))
        if expected.buffers and self._gradients.is_repeatable:
            others = [each.buffers for each in variants]
            yield self._compare("buffers", step, tap["buffers"], expected.buffers, others)

    def _rate_of_step(self, step: int, rates: list[float]) -> float:
        """Return the rate of the schedule, or that of the run if it depends on more than the step.

        `rates` are those of the groups of the run's optimizer.
        """
        if self._has_plain_schedule:
            return self._rate(step - 1)
        scale, rate = max(zip(self._update.scales, rates, strict=True))
        return rate / scale if scale else 0.0

    def _overflows(self, computed: Backward) -> bool:
        return self._plain.precision == "fp16" and not _all_finite(computed.gradients)

    # --- checks -----------------------------------------------------------------------------------

    def _compare(
        self, what: str, step: int, actual: Tensors, expected: Tensors, variants: list[Tensors]
    ) -> VerificationCheck:
        limits = self._limits.update(what, expected, variants)
        errors = relative_errors(actual, expected)
        failed = [name for name in errors if not errors[name] <= limits.get(name, 0.0)]
        closest = max(limits, key=lambda name: errors[name] / limits[name])
        shown = failed[0] if failed else closest
        is_finite = math.isfinite(errors[shown])
        return VerificationCheck(
            what=what,
            step=step,
            passed=not failed,
            tensor=shown,
            error=errors[shown] if is_finite else None,
            limit=limits.get(shown, 0.0),
            detail="" if is_finite else f"{shown} is not finite",
        )

    def _compare_bits(
        self, what: str, step: int, kind: str, expected: Tensors
    ) -> VerificationCheck:
        """Check that every rank's tensors of this kind equal the expected ones bit for bit."""
        for rank in range(self.plan.world_size):
            tensors = self._tap(rank, step)[kind]
            for name, tensor in expected.items():
                # Ranks other than 0 write digests in place of weights.
                actual = tensors[name]
                found = actual if isinstance(actual, str) else digest(actual)
                if found != digest(tensor):
                    other = f"that of rank 0: {UNEQUAL}" if rank else "that of the plain process"
                    detail = f"{name} of rank {rank} is not equal to {other}"
                    return VerificationCheck(
                        what=what, step=step, passed=False, tensor=name, detail=detail
                    )
        return VerificationCheck(what=what, step=step, passed=True)


def _compare_rate(step: int, rates: list[float], expected: list[float]) -> VerificationCheck:
    """Check that each group of the optimizer steps with the rate of the schedule."""
    wrong = [
        (rate, right)
        for rate, right in zip(rates, expected, strict=True)
        if abs(rate - right) > MAX_RATE_ERROR * abs(right)
    ]
    detail = "the optimizer has {:g}, the schedule {:g}".format(*wrong[0]) if wrong else ""
    return VerificationCheck(what="learning rates", step=step, passed=not wrong, detail=detail)


def _all_finite(tensors: Tensors) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in tensors.values())


if __name__ == "__main__":
    sys.exit(main())
