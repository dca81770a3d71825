"""Compares the verification files of a run with the same steps in one plain process.

Runs as a process of its own, because it imports torch. Further plain processes, which differ only
in rounding, show how far apart two tensors may be.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import torch

from distrain.models.importing import make_importable, user_folders
from distrain.runners import formatting
from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.config.toml import flatten
from distrain.runners.records.reader import Record
from distrain.runners.system.files import write_atomically
from distrain.runners.system.processes import die_with_parent
from distrain.runners.training.tap import Tensors, digest
from distrain.runners.training.tap_files import FOLDER, STEPS, tap_file
from distrain.runners.verification.reference import PlainProcess, StepResult
from distrain.runners.verification.result import RESULT_FILE, ReferenceComparison, VerificationCheck
from distrain.runners.verification.tolerance import (
    TOLERANCE,
    ErrorScale,
    Limits,
    distance,
    norm,
    relative_error,
)

MAX_LOSS_DIFFERENCE = 1e-3  # relative; loss of a batch against the mean of its parts' losses
LOSSY = {
    "ddp.comm_hook": {"fp16_compress": torch.float16, "bf16_compress": torch.bfloat16},
    "horovod.compression": {"fp16": torch.float16},
}


def main() -> int:
    """Compare the run whose folder is the first argument; write the result into that folder."""
    die_with_parent()
    record = Record(sys.argv[1])
    plan = record.state.plan
    assert plan is not None
    torch.set_num_threads(plan.threads)
    make_importable(user_folders(record.config.code_dir))
    comparison = ReferenceComparer(record.config, plan, record).compare()
    write_atomically(record.dir / FOLDER / RESULT_FILE, msgspec.json.encode(comparison))
    return 0


class ReferenceComparer:
    """Repeats the steps of a run in plain processes and compares the tensors after each."""

    def __init__(self, config: RunConfig, plan: Plan, record: Record) -> None:
        self.config = config
        self.plan = plan
        self.record = record
        on_cpu = plan.devices[0].kind == "cpu"
        self.device = torch.device("cpu") if on_cpu else torch.device("cuda", 0)
        self.declared: list[str] = []
        self._gradient_dtype = self._find_gradient_dtype()
        self._limits = Limits()
        initial = self._tap(0, 0)
        self.sizes: tuple[int, ...] = initial["sizes"]
        self.initial: Tensors = initial["weights"]

    def compare(self) -> ReferenceComparison:
        checks = list(self._checks())
        return ReferenceComparison(checks=checks, declared=self.declared, tolerance=TOLERANCE)

    def _tap(self, rank: int, step: int) -> dict[str, Any]:
        path = tap_file(self.record.dir / FOLDER, rank, step)
        content: dict[str, Any] = torch.load(path, weights_only=True)
        return content

    def _checks(self) -> Iterator[VerificationCheck]:
        plain = PlainProcess(self.config, self.plan, self.device)
        initial_weights, _ = plain.state()
        yield self._compare_bits("initial weights", 0, "weights", initial_weights)
        expected, variants = self._train_references(plain)
        for step in range(1, STEPS + 1):
            results = [variant[step - 1] for variant in variants]
            yield from self._compare_step(step, expected[step - 1], results)
        yield self._compare_evaluation(plain)

    # --- the reference ----------------------------------------------------------------------------

    def _train_references(
        self, plain: PlainProcess
    ) -> tuple[list[StepResult], list[list[StepResult]]]:
        """Return the steps of the plain process, and those of variants with other rounding.

        The variants go through the parts of the ranks one by one. One adds up shares, another
        averages means: strategies do either. If the plain process goes through these parts as
        well, the variant computes in fp64 instead.

        If gradients are sent in less than fp32, there are further variants that round them too,
        and all variants step with the gradients of the run. Otherwise rounding errors would
        accumulate, because Adam's step does not shrink with a small gradient.
        """
        config = self.config
        plan = self.plan
        parts = plan.world_size, config.train.accumulate
        at_once, random_states = self._choose_parts()
        has_other_parts = at_once and parts != (1, 1)
        taps = [self._tap(0, step) for step in range(1, STEPS + 1)]
        rates = [tap["rate"] for tap in taps]
        step_gradients = [tap["gradients"] for tap in taps] if self._gradient_dtype else []

        def train(process: PlainProcess, parts: tuple[int, int], **how: Any) -> list[StepResult]:
            steps = process.steps(self.sizes, *parts)
            how["step_gradients"] = step_gradients
            return list(process.train(steps, rates, dict(random_states), **how))

        expected = train(plain, (1, 1) if at_once else parts)
        skips = [result.skipped for result in expected]
        exact = not has_other_parts or self._gradient_dtype is not None
        divisors = {1, plan.world_size} if has_other_parts else {1}
        variants = [
            train(
                PlainProcess(config, plan, self.device, exact),
                parts,
                skips=skips,
                divisor=divisor,
                gradient_dtype=dtype,
            )
            for divisor in divisors
            for dtype in {None, self._gradient_dtype}
        ]
        return expected, variants

    def _choose_parts(self) -> tuple[bool, dict[int, torch.Tensor]]:
        """Return whether the plain process can take the samples of a step at once instead of in
        the parts of the ranks, and the random states of the ranks if the model draws numbers.
        """
        ranks = self.plan.world_size
        accumulate = self.config.train.accumulate
        draws, is_coupled = self._probe_model(ranks, accumulate)
        if not draws and not is_coupled:
            return True, {}
        if self.config.strategy == "dp" and len(self.plan.devices) > 1:
            sys.exit(
                "BatchNorm and dropout cannot be verified with strategy dp on several GPUs: the "
                "plain process does not reproduce the replicas of nn.DataParallel"
            )
        random_states: dict[int, torch.Tensor] = {}
        if draws:
            random_states = {rank: self._tap(rank, 0)["random"] for rank in range(ranks)}
            self.declared.append(
                "random numbers in training (dropout) differ between ranks: the plain process "
                "draws the numbers of each rank for its part of the batch"
            )
        if is_coupled:
            self.declared.append(
                "the loss of a batch is not the mean of its parts' losses (BatchNorm): the plain "
                "process goes through the parts of the ranks one by one"
            )
        return False, random_states

    @torch.no_grad()
    def _probe_model(self, ranks: int, accumulate: int) -> tuple[bool, bool]:
        """Return whether the model draws random numbers, and whether its loss couples the samples
        of a rank's batch (BatchNorm, unless it is synchronized between the ranks).
        """
        process = PlainProcess(self.config, self.plan, self.device)
        (whole,) = next(process.steps(self.sizes, 1, 1))
        state = torch.get_rng_state()
        loss = float(process.loss(whole))
        draws = not torch.equal(state, torch.get_rng_state())
        parts = next(process.steps(self.sizes, ranks, accumulate))
        mean = math.fsum(float(process.loss(part)) * part.share for part in parts)
        differs = abs(mean - loss) > MAX_LOSS_DIFFERENCE * abs(loss)
        return draws, differs and not draws and not self.config.train.sync_batchnorm

    def _find_gradient_dtype(self) -> torch.dtype | None:
        """Return the type to which the config rounds gradients between ranks, and declare it."""
        settings = flatten(self.config.to_dict())
        for key, types in LOSSY.items():
            if key.startswith(f"{self.config.strategy}.") and settings[key] in types:
                setting = f'{key} = "{settings[key]}"'
                self.declared.append(f"gradients are rounded between ranks ({setting})")
                return types[settings[key]]
        return None

    # --- checks -----------------------------------------------------------------------------------

    def _compare_step(
        self, step: int, plain: StepResult, variants: list[StepResult]
    ) -> Iterator[VerificationCheck]:
        tap = self._tap(0, step)
        if tap["skipped"] != plain.skipped:
            actual, expected = "skipped", "taken"
            if plain.skipped:
                actual, expected = expected, actual
            detail = f"the run has {actual} the step, the plain process has {expected} it"
            yield VerificationCheck(what="overflows", step=step, passed=False, detail=detail)
            return
        if not plain.skipped:
            others = [variant.gradients for variant in variants]
            yield self._compare("gradients", step, tap["gradients"], plain.gradients, others, norm)

        def update(name: str, weights: Tensors) -> float:
            """Return how far a parameter is from its initial value."""
            return distance(weights[name], self.initial[name])

        others = [variant.weights for variant in variants]
        yield self._compare("weights", step, tap["weights"], plain.weights, others, update)
        if self.plan.world_size > 1:
            yield self._compare_bits("weights of all ranks", step, "weights", tap["weights"])
        if plain.buffers:
            others = [variant.buffers for variant in variants]
            yield self._compare("buffers", step, tap["buffers"], plain.buffers, others, norm)

    def _compare(
        self,
        what: str,
        step: int,
        actual: Tensors,
        expected: Tensors,
        variants: list[Tensors],
        scale: ErrorScale,
    ) -> VerificationCheck:
        limits = self._limits.update(what, expected, variants, scale)
        errors = {name: relative_error(actual, expected, name, scale) for name in expected}
        failed = [name for name in errors if not errors[name] <= limits[name]]
        closest = max(errors, key=lambda name: errors[name] / limits[name])
        shown = failed[0] if failed else closest
        is_finite = math.isfinite(errors[shown])
        return VerificationCheck(
            what=what,
            step=step,
            passed=not failed,
            tensor=shown,
            error=errors[shown] if is_finite else None,
            limit=limits[shown],
            detail="" if is_finite else _explain_infinite_error(shown, actual),
        )

    def _compare_bits(
        self, what: str, step: int, kind: str, expected: Tensors
    ) -> VerificationCheck:
        """Check that every rank's tensors of this kind equal the expected ones bit for bit."""
        source = "the plain process" if step == 0 else "rank 0"
        for rank in range(self.plan.world_size):
            tensors = self._tap(rank, step)[kind]
            for name, tensor in expected.items():
                # Ranks other than 0 write digests in place of tensors.
                actual = digest(tensors[name]) if rank == 0 else tensors[name]
                if actual != digest(tensor):
                    detail = f"{name} of rank {rank} is not equal to that of {source}"
                    return VerificationCheck(
                        what=what, step=step, passed=False, tensor=name, detail=detail
                    )
        return VerificationCheck(what=what, step=step, passed=True)

    def _compare_evaluation(self, plain: PlainProcess) -> VerificationCheck:
        """Check that the run's last evaluation counted each sample exactly once."""
        evaluation = self.record.evaluations()[-1]
        samples, metrics = plain.evaluate()
        expected = {name: count for name, (_, count) in metrics.items()}
        actual = {name: metric.count for name, metric in evaluation.metrics.items()}
        counts = [("samples", evaluation.samples, samples)]
        counts += [(name, actual.get(name, 0), expected.get(name, 0)) for name in actual | expected]
        wrong = [count for count in counts if count[1] != count[2]]
        name, evaluated, there = wrong[0] if wrong else counts[0]
        return VerificationCheck(
            what="evaluation counts",
            step=STEPS,
            passed=evaluation.samples == samples and actual == expected,
            detail=f"{name}: {formatting.count(evaluated)} evaluated, "
            f"{formatting.count(there)} expected",
        )


def _explain_infinite_error(name: str, actual: Tensors) -> str:
    if name in actual and not bool(actual[name].isfinite().all()):
        return f"{name} is not finite"
    return f"{name} changes in the run, but not in the plain process"


if __name__ == "__main__":
    sys.exit(main())
