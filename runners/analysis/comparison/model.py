"""What a comparison consists of: candidates with their figures, and what they differ in."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from distrain.runners.analysis.interval import Interval

Unit = Literal["samples/s", "steps/s"]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A setting in which the candidates differ, with the value of each (None where unset).

    `fair`: they may differ in it, because it is what is compared. `checked`: whether that is known;
    what a setting of a script means is not.
    """

    key: str
    values: list[str | None]
    fair: bool
    checked: bool = True


class CandidateCurve(msgspec.Struct, frozen=True, kw_only=True):
    """A curve with at most a few hundred points. A missing value is None.

    `step`: optimizer steps; empty for what is sampled by time only.
    `time`: seconds since the first step began; of a script, since its processes were started.
    `low`, `high`: the extremes of the values behind each point, over all ranks; may be empty.
    """

    step: list[float] = []
    time: list[float]
    values: list[float | None]
    low: list[float | None] = []
    high: list[float | None] = []


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """What is compared: a run, or one config of a bench. Unknown figures are None or empty.

    `folders`: of its runs.
    `rates`: in the unit of the comparison, of each round of a bench or of each stretch of a run.
    `outliers`: indices of `rates`.
    `rate`, `ratio`: median rate, and its ratio to the baseline's.
    `efficiency`: samples/s per device, as a share of that of strategy `single`.
    `phases`: shares of the step, with "other".
    `overlap`: communication that overlaps with backward, as a share of the step; no phase.
    `host_memory`, `device_memory`: peak, in bytes.
    `cpu`, `gpu`: utilisation in percent.
    `joules_per_sample`: energy of all GPUs.
    `seconds_to_target`: known only if every round reached the target.
    `target_ratio`: ratio of `seconds_to_target` to the baseline's.
    `metrics`, `eval_samples`: of the last evaluation.
    `logged`: last values that a script has logged.
    `curves`: "loss"; each metric of the evaluations as "eval …"; what a script has logged as
    "logged …"; where measured, "gpu" (percent) and "power" (watts of all devices).
    `problem`: why it failed or was excluded.
    """

    name: str
    strategy: str
    launcher: str
    precision: str
    world_size: int | None
    devices: list[str]
    folders: list[str]
    rates: list[float] = []
    outliers: list[int] = []
    rate: Interval | None = None
    ratio: Interval | None = None
    efficiency: Interval | None = None
    phases: dict[str, float] = {}
    overlap: float | None = None
    host_memory: float | None = None
    device_memory: float | None = None
    cpu: float | None = None
    gpu: float | None = None
    joules_per_sample: float | None = None
    seconds_to_target: Interval | None = None
    target_ratio: Interval | None = None
    metrics: dict[str, float | None] = {}
    eval_samples: int | None = None
    logged: dict[str, float | None] = {}
    curves: dict[str, CandidateCurve] = {}
    diagnosis: str = ""
    problem: str = ""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Candidates, and what can be concluded about them.

    `baseline`: name of a candidate.
    `results`: sentences, the most important one first.
    `unit`: of the rates; steps/s if some candidate does not report its samples.
    `equal`: settings that all candidates have in common, as printed.
    `unchecked`: what a fair comparison has in common and scripts have not declared.
    `target`: the metric that all were trained to, as printed; empty if there was none.
    `warnings`: sentences that say what makes the comparison unequal or uncertain.
    `provenance`: host, devices, code and versions; for runs also a list of "records".
    """

    title: str
    kind: Literal["runs", "bench"]
    baseline: str
    candidates: list[Candidate]
    results: list[str]
    equal: dict[str, str]
    differences: list[Difference]
    unit: Unit = "samples/s"
    unchecked: list[str] = []
    target: str = ""
    warnings: list[str] = []
    provenance: dict[str, Any] = {}

    @property
    def unequal(self) -> list[Difference]:
        """The settings that differ but should be equal."""
        return [difference for difference in self.differences if not difference.fair]
