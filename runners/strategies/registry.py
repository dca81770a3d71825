"""From the `strategy` of a config to a Strategy, and to the process group that it works in."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module

import torch

from distrain.models.errors import TaskError
from distrain.models.importing import load
from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.distributed import process_group
from distrain.runners.distributed.process_group import World
from distrain.runners.strategies.base import Strategy


def build(config: RunConfig, world: World) -> Strategy:
    """Make the strategy that the config names, built in or the user's own.

    Raises TaskError where a user's own factory cannot be found or returns something else.
    """
    if config.strategy == "single":
        return Strategy(config, world)
    if ":" not in config.strategy:
        module = import_module(f"distrain.runners.strategies.{config.strategy}")
        built: Strategy = module.STRATEGY(config, world)
        return built
    made = load("strategy", config.strategy)(config, world)
    if not isinstance(made, Strategy):
        problem = f"{config.strategy} returned a {type(made).__name__}, not a {_STRATEGY}"
        raise TaskError("strategy", problem)
    return made


_STRATEGY = "distrain.runners.strategies.Strategy"


def join(config: RunConfig, plan: Plan, device: torch.device) -> AbstractContextManager[World]:
    """Return a context in which this rank is a member of the run's group.

    The group is Horovod's where the plan's backend is Horovod, and else torch's.
    """
    if plan.backend == "horovod":
        # Imported here, because Horovod is an optional dependency.
        from distrain.runners.strategies import horovod

        return horovod.join(config, device)
    return process_group.join(config, plan, device)
