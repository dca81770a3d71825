"""Compares what the ranks of a run have left with one plain process; a process of its own, for it
loads torch. How far apart two tensors may be is measured: by a second plain process that differs
from the first in nothing but rounding.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from itertools import product
from statistics import median
from typing import Any

import msgspec
import torch

from runners import words
from runners.config import RunConfig, flat
from runners.plan import Plan
from runners.processes import die_with_parent
from runners.record import Record
from runners.state import write_atomically
from runners.verification import FOLDER, RESULT, STEPS
from runners.verification.reference import Process, Taken
from runners.verification.report import Check, Verdict
from runners.verification.tap import Tensors, digest, place

FACTOR = 10.0
FLOOR = 16 * torch.finfo(torch.float32).eps
COUPLED = 1e-3  # by which the loss of a batch differs from the mean of its parts' losses
LOSSY = {
    "ddp.comm_hook": {"fp16_compress": torch.float16, "bf16_compress": torch.bfloat16},
    "horovod.compression": {"fp16": torch.float16},
}
TOLERANCE = (
    f"{FACTOR:g} × how far two plain processes are apart that differ in rounding alone, measured "
    "for each tensor"
)


Scale = Callable[[str, Tensors], float]
"""What an error of a tensor is relative to."""


def main() -> int:
    """Judge the record that the argument names; leaves the result in it."""
    die_with_parent()
    record = Record(sys.argv[1])
    plan = record.state.plan
    assert plan is not None
    torch.set_num_threads(plan.threads)
    verdict = Judge(record.config, plan, record).verdict()
    write_atomically(record.dir / FOLDER / RESULT, msgspec.json.encode(verdict))
    return 0


class Judge:
    """Follows the steps of a run with a plain process and another one beside it."""

    def __init__(self, config: RunConfig, plan: Plan, record: Record) -> None:
        self.config, self.plan, self.record = config, plan, record
        cpu = plan.devices[0].kind == "cpu"
        self.device = torch.device("cpu") if cpu else torch.device("cuda", 0)
        self.declared: list[str] = []
        self._wire = self._narrow_wire()
        self._noise: dict[tuple[str, str], float] = {}  # by what is compared and the tensor
        first = self._tap(0, 0)
        self.sizes: tuple[int, ...] = first["sizes"]
        self.initial: Tensors = first["weights"]

    def verdict(self) -> Verdict:
        checks = list(self._checks())
        return Verdict(checks=checks, declared=self.declared, tolerance=TOLERANCE)

    def _tap(self, rank: int, step: int) -> dict[str, Any]:
        path = place(self.record.dir / FOLDER, rank, step)
        found: dict[str, Any] = torch.load(path, weights_only=True)
        return found

    def _checks(self) -> Iterator[Check]:
        plain = Process(self.config, self.plan, self.device)
        yield self._same_bits("initial weights", 0, "weights", plain.state()[0])
        taken, beside = self._followed(plain)
        for step in range(1, STEPS + 1):
            yield from self._step(step, taken[step - 1], [each[step - 1] for each in beside])
        yield from self._evaluation(plain)

    # --- the reference ----------------------------------------------------------------------------

    def _followed(self, plain: Process) -> tuple[list[Taken], list[list[Taken]]]:
        """The steps of the plain process, and those of others that round otherwise: they go through
        the parts of the ranks one by one, adding up shares as some strategies do, or averaging
        means as others do; or, where the first goes through parts already, one computes in fp64.
        Where gradients travel in less than fp32, more of them round those as well, and all step by
        the gradients of the run: what is lost on the way must not grow from step to step, which it
        would, since Adam makes a large step of a small gradient whatever is left of it.
        """
        config, plan = self.config, self.plan
        in_parts = plan.world_size, config.train.accumulate
        whole, randoms = self._split()
        differs = whole and in_parts != (1, 1)
        taps = [self._tap(0, step) for step in range(1, STEPS + 1)]
        rates = [tap["rate"] for tap in taps]
        given = [tap["gradients"] for tap in taps] if self._wire else []

        def train(process: Process, parts: tuple[int, int], **how: Any) -> list[Taken]:
            steps = process.steps(self.sizes, *parts)
            return list(process.trained(steps, rates, dict(randoms), given=given, **how))

        taken = train(plain, (1, 1) if whole else in_parts)
        skips = [each.skipped for each in taken]
        exact = not differs or self._wire is not None
        others = [
            train(
                Process(config, plan, self.device, exact), in_parts, skips=skips, of=of, wire=wire
            )
            for of in {1, plan.world_size if differs else 1}
            for wire in {None, self._wire}
        ]
        return taken, others

    def _split(self) -> tuple[bool, dict[int, torch.Tensor]]:
        """Whether the reference takes the samples of a step at once, and not in the ranks' parts,
        and the ranks' random numbers.
        """
        ranks, accumulate = self.plan.world_size, self.config.train.accumulate
        draws, coupled = self._nature(ranks, accumulate)
        if (draws or coupled) and self.config.strategy == "dp" and len(self.plan.devices) > 1:
            sys.exit("how nn.DataParallel's replicas share BatchNorm or dropout is not followed")
        if draws:
            self.declared.append(
                "random numbers in training (dropout) differ from rank to rank: the plain process "
                "draws those of each rank for its part"
            )
        if coupled:
            self.declared.append(
                "the loss of a batch is not the mean of its parts' losses (BatchNorm): the plain "
                "process goes through the parts of the ranks one by one"
            )
        if not (draws or coupled):
            return True, {}
        randoms = {rank: self._tap(rank, 0)["random"] for rank in range(ranks)} if draws else {}
        return False, randoms

    @torch.no_grad()
    def _nature(self, ranks: int, accumulate: int) -> tuple[bool, bool]:
        """Whether the model draws random numbers, and whether its loss couples the samples of a
        batch, other than by statistics of all ranks.
        """
        trial = Process(self.config, self.plan, self.device)
        (whole,) = next(trial.steps(self.sizes, 1, 1))
        state = torch.get_rng_state()
        loss = float(trial.loss(whole))
        draws = not torch.equal(state, torch.get_rng_state())
        parts = next(trial.steps(self.sizes, ranks, accumulate))
        apart = math.fsum(float(trial.loss(part)) * part.share for part in parts)
        differs = abs(apart - loss) > COUPLED * abs(loss)
        return draws, differs and not draws and not self.config.train.sync_batchnorm

    def _narrow_wire(self) -> torch.dtype | None:
        """To what gradients are rounded on the way between ranks, on purpose."""
        settings = flat(self.config.to_dict())
        for key, kinds in LOSSY.items():
            if key.startswith(f"{self.config.strategy}.") and settings[key] in kinds:
                how = f'{key} = "{settings[key]}"'
                self.declared.append(f"gradients are rounded on the way between ranks ({how})")
                return kinds[settings[key]]
        return None

    # --- checks -----------------------------------------------------------------------------------

    def _step(self, step: int, plain: Taken, beside: list[Taken]) -> Iterator[Check]:
        tap = self._tap(0, step)
        if tap["skipped"] != plain.skipped:
            said = ("skipped", "taken") if tap["skipped"] else ("taken", "skipped")
            text = f"the step was {said[0]}, and {said[1]} by the plain process"
            yield Check(what="overflow", step=step, passed=False, words=text)
            return
        if not plain.skipped:
            pair = plain.gradients, [each.gradients for each in beside]
            yield self._compared("gradients", step, tap["gradients"], *pair, _norm)

        def update(name: str, weights: Tensors) -> float:
            """How far a parameter has come."""
            return _distance(weights[name], self.initial[name])

        pair = plain.weights, [each.weights for each in beside]
        yield self._compared("weights", step, tap["weights"], *pair, update)
        if self.plan.world_size > 1:
            yield self._same_bits("weights of all ranks", step, "weights", tap["weights"])
        if plain.buffers:
            pair = plain.buffers, [each.buffers for each in beside]
            yield self._compared("buffers", step, tap["buffers"], *pair, _norm)

    def _compared(
        self,
        what: str,
        step: int,
        found: Tensors,
        plain: Tensors,
        beside: list[Tensors],
        scale: Scale,
    ) -> Check:
        """The first tensor that is over its limit, else the worst beside it."""
        limits = self._limits(what, plain, beside, scale)
        errors = {name: _error(found, plain, name, scale) for name in plain}
        over = [name for name in errors if not errors[name] <= limits[name]]
        told = over[0] if over else max(errors, key=lambda name: errors[name] / limits[name])
        finite = math.isfinite(errors[told])
        return Check(
            what=what,
            step=step,
            passed=not over,
            tensor=told,
            error=errors[told] if finite else None,
            limit=limits[told],
            words="" if finite else _beyond_measure(told, found),
        )

    def _limits(
        self, what: str, plain: Tensors, beside: list[Tensors], scale: Scale
    ) -> dict[str, float]:
        """How far apart each tensor may be, relatively: by the most that rounding has done to it
        in a step so far, and never by less than to half of all tensors.
        """
        for name, other in product(plain, beside):
            error = _error(other, plain, name, scale)
            if math.isfinite(error):
                self._noise[what, name] = max(error, self._noise.get((what, name), 0.0))
        noise = {name: self._noise.get((what, name), 0.0) for name in plain}
        usual = median(noise.values())
        return {name: FACTOR * max(noise[name], usual) + FLOOR for name in noise}

    def _same_bits(self, what: str, step: int, kind: str, wanted: Tensors) -> Check:
        """Whether all ranks have the very bits of these tensors."""
        for rank in range(self.plan.world_size):
            found = self._tap(rank, step)[kind]
            for name, tensor in wanted.items():
                mine = found[name]
                if (digest(mine) if rank == 0 else mine) != digest(tensor):
                    text = f"{name} of rank {rank} is another than " + (
                        "that of the plain process" if step == 0 else "that of rank 0"
                    )
                    return Check(what=what, step=step, passed=False, tensor=name, words=text)
        return Check(what=what, step=step, passed=True)

    def _evaluation(self, plain: Process) -> Iterator[Check]:
        found = self.record.evaluations()[-1]
        samples, wanted = plain.evaluated()
        counts = {name: metric.count for name, metric in found.metrics.items()}
        expected = {name: count for name, (_, count) in wanted.items()}
        exact = found.samples == samples and counts == expected
        told = [("samples", found.samples, samples)]
        told += [(name, counts.get(name, 0), expected.get(name, 0)) for name in counts | expected]
        what, seen, there = next((each for each in told if each[1] != each[2]), told[0])
        text = f"{what}: {words.count(seen)} evaluated, {words.count(there)} are there"
        yield Check(what="evaluation counts", step=STEPS, passed=exact, words=text)


def _error(found: Tensors, wanted: Tensors, name: str, scale: Scale) -> float:
    """The distance of two tensors beside the size of the wanted one."""
    mine = found.get(name, torch.zeros_like(wanted[name]))
    apart, size = _distance(mine, wanted[name]), scale(name, wanted)
    return apart / size if size else (0.0 if apart == 0 else math.inf)


def _beyond_measure(name: str, found: Tensors) -> str:
    if name in found and not bool(found[name].isfinite().all()):
        return f"{name} is not finite"
    return f"{name} changes here, and does not in the plain process"


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other.double()).norm())


def _norm(name: str, tensors: Tensors) -> float:
    return float(tensors[name].double().norm())


if __name__ == "__main__":
    sys.exit(main())
