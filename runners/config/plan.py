"""The plan of a run: the effective figures that follow from its config on given devices.

The record keeps the plan, every screen shows it, and the ranks follow it. `planning` makes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from distrain.runners.errors import ConfigError
from distrain.runners.protocol.events import Int
from distrain.runners.system.devices import Device

if TYPE_CHECKING:  # not loaded to list runs
    from distrain.runners.config.schema import RunConfig

TIMELINE = "horovod-timeline.json"
Size = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Arithmetic = Literal["fp32", "tf32", "bf16", "fp16"]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The effective figures of a run; lists are indexed by rank.

    `devices` are those of each host, by local rank, and `nodes` is the number of hosts. `threads`
    are CPU threads of each rank. Under `dp`, and in a script of one process, one rank drives all
    `devices`. `scheduled`: Slurm chooses hosts and devices. `tasks`: another scheduler starts each
    rank by itself, on hosts that are not known in advance.

    `batch` is samples per rank of a full step, `micro_batch` the largest piece of it that goes
    through the model at once, `loader_workers` loader processes, `lr` the rate after warm-up and
    scaling, `precision` never "auto". A script decides these, and the backend, by itself: they
    are empty, and shown nowhere. `observed`: the program was not started by distrain, which only
    records it.
    """

    world_size: Size
    nodes: Size = 1
    devices: Annotated[list[Device], msgspec.Meta(min_length=1)]
    batch: list[Int] = []
    micro_batch: Int = 0
    loader_workers: list[Int] = []
    threads: Size
    lr: float = 0.0
    precision: Arithmetic | Literal[""] = ""
    backend: str
    notices: list[str] = []
    scheduled: bool = False
    tasks: bool = False
    observed: bool = False

    @property
    def spread(self) -> bool:
        """Whether ranks may be on other hosts than the first."""
        return self.nodes > 1 or self.tasks

    @property
    def device_count(self) -> int:
        """How many different devices the run has on all hosts, as far as it is known.

        The UUIDs of those of a job are known on its nodes only.
        """
        if self.tasks and self.world_size > 1:
            return self.world_size
        return self.nodes * len({device.uuid or device.label for device in self.devices})

    @property
    def ranks_per_node(self) -> int:
        return self.world_size // self.nodes


def describe_setup(config: RunConfig, plan: Plan | None) -> list[str]:
    """Return strategy, launcher and precision; a script decides its precision by itself."""
    if config.is_script:
        observed = ["observed"] if plan and plan.observed else []
        return [config.strategy, config.launcher, *observed]
    return [config.strategy, config.launcher, plan.precision if plan else config.precision]


def share(total: int, parts: int) -> list[int]:
    """Divide `total` things among `parts` ranks; the remainder goes to the lowest ranks."""
    least, rest = divmod(total, parts)
    return [least + 1 if part < rest else least for part in range(parts)]


def require_training_loop(config: RunConfig) -> RunConfig:
    """Return the config of a check; raises ConfigError if it is a script."""
    if config.is_script:
        text = "a script decides itself what it trains; a check needs a preset without one"
        raise ConfigError([("script", text)])
    return config


def require_one_host(plan: Plan) -> Plan:
    """Return the plan of a run of a bench or check; raises ConfigError if hosts would join it."""
    if plan.spread and plan.world_size > 1 and not plan.scheduled:
        key = "launcher" if plan.tasks else "dist.nodes"
        raise ConfigError([(key, "hosts join a single run, not those of a bench or check")])
    return plan
