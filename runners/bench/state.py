"""The state of a bench: bench.json, written by its process alone."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from distrain.runners.analysis.comparison.fairness import OPTIMIZER_STEPS
from distrain.runners.analysis.comparison.model import Unit
from distrain.runners.analysis.interval import LEAST, MOST
from distrain.runners.config.plan import Plan
from distrain.runners.protocol.events.base import NEVER
from distrain.runners.records.state import Pid

FORMAT = 1
BenchStatus = Literal["starting", "running", "stopping", "completed", "failed", "stopped"]
Count = Annotated[int, msgspec.Meta(ge=0, le=NEVER)]
# The name of a folder, which cannot lead to another place.
RunId = Annotated[str, msgspec.Meta(pattern=r"^([^./\0][^/\0]*)?$")]
# A rate or a duration of which ratios are computed.
Measured = Annotated[float, msgspec.Meta(ge=LEAST, le=MOST)]
LIVE: tuple[BenchStatus, ...] = ("starting", "running", "stopping")


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a round.

    `rate` is in samples/s over the `seconds` after `warmup_s`, and None if a script does not report
    its samples; `step_rate` is in steps/s. `ended_early`: the program ended by itself before all
    was measured that the rules ask for. `declared` is the config that a script has passed to
    `init`, or a task's own network and data, `step_kind` what counts as its step. `duration_s` is
    the time from launch to end, `other_cores` the number of cores that were busy with other
    programs. `kind` and `diagnosis` are those of the run. The other fields are those of a
    `Candidate`.
    """

    candidate: str = msgspec.field(name="contestant")
    round: Count
    run_id: RunId
    rate: Measured | None
    seconds: float
    warmup_s: float
    steady: bool
    duration_s: float = msgspec.field(name="took")
    step_rate: Measured | None = None
    steps: Count = 0
    samples_per_step: float | None = None
    ended_early: bool = False
    declared: dict[str, Any] = {}
    step_kind: str = OPTIMIZER_STEPS
    phases: dict[str, float] = {}
    overlap: float | None = None
    host_memory: float | None = None
    device_memory: float | None = None
    cpu: float | None = None
    gpu: float | None = None
    other_cores: float | None = msgspec.field(name="others", default=None)
    joules_per_sample: float | None = None
    seconds_to_target: Measured | None = None
    metrics: dict[str, float | None] = {}
    kind: str = ""
    diagnosis: str = ""

    @property
    def unit(self) -> Unit:
        """The unit of this run: that of the bench also depends on its other runs."""
        return "steps/s" if self.rate is None else "samples/s"

    def speed(self, unit: Unit) -> float | None:
        """Return the rate in this unit."""
        return self.rate if unit == "samples/s" else self.step_rate


class CurrentRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run that is being measured; `order` are the candidates of its round.

    `began` is in Unix seconds. `run_id` is empty until the run is launched.
    """

    round: Count
    order: list[str]
    candidate: str = msgspec.field(name="contestant")
    began: float
    run_id: RunId = ""

    def __post_init__(self) -> None:
        if self.candidate not in self.order:
            raise ValueError("the current run is of no candidate of its round")

    @property
    def number(self) -> int:
        """The number of the run in its round, from 1."""
        return self.order.index(self.candidate) + 1


class BenchState(msgspec.Struct, frozen=True, kw_only=True):
    """bench.json. Times are in Unix seconds.

    `started` has a time for the start and for each resume. `rounds` is the number of complete
    rounds; `measurements` include those of the current round. `excluded` are the candidates that
    failed, with the reason. `provenance` is that of the first start; `warnings` name what has
    changed since, and what disturbed the measurements from the start.
    """

    bench_id: str
    format: int = FORMAT
    name: str = ""
    status: BenchStatus = "starting"
    reason: str = ""
    created: float
    started: list[float] = []
    ended: float | None = None
    host: str = ""
    cwd: str = ""
    command: list[str] = []
    queue: bool = False
    plans: dict[str, Plan] = {}
    pid: Pid | None = None
    pid_started: float | None = None
    pid_since_boot: float | None = None
    rounds: Count = 0
    measurements: list[Measurement] = []
    excluded: dict[str, str] = msgspec.field(name="out", default_factory=dict)
    current: CurrentRun | None = msgspec.field(name="now", default=None)
    warnings: list[str] = []
    provenance: dict[str, Any] = {}

    @property
    def unit(self) -> Unit:
        """The unit of all rates: steps/s if a candidate does not report its samples."""
        units = {each.unit for each in self.measurements}
        return "steps/s" if "steps/s" in units else "samples/s"

    @property
    def live(self) -> bool:
        return self.status in LIVE
