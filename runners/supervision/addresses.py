"""The addresses of a run: where its supervisor listens, and which interface its ranks use."""

from __future__ import annotations

from collections.abc import Callable

from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.launchers.batch_scheduler import BatchScheduler
from distrain.runners.protocol.client import ServerAddresses, read_user_token
from distrain.runners.supervision.membership import hosts_join
from distrain.runners.system import scheduler_env
from distrain.runners.system.network import choose_interface, listening_address, reachable_address


def listen_address(
    config: RunConfig,
    plan: Plan,
    scheduler: BatchScheduler | None,
    warn: Callable[[str], object],
) -> str:
    """Return HOST or HOST:PORT for peers on other hosts; empty where there are none.

    `warn` is called with a sentence where no address was found and the run does without.
    Raises DistrainError.
    """
    if configured := config.report.listen or config.dist.rendezvous:
        return reachable_address(configured)
    if plan.tasks:
        return scheduler_env.report_address(config.dist.init_method)
    if scheduler:
        return scheduler.report_address(warn)
    return listening_address() if hosts_join(plan) else ""


def known_token(config: RunConfig, plan: Plan) -> str:
    """Return the token that the hosts have been given in advance; empty where there is none."""
    return read_user_token() if plan.tasks or config.dist.rendezvous else ""


def interface_variables(
    config: RunConfig, plan: Plan, addresses: ServerAddresses
) -> dict[str, str]:
    """Return the variables that choose the interface of this host's ranks in a run on several.

    Its node agent makes the same choice; here it is made for the record.
    """
    if not hosts_join(plan):
        return {}
    target = addresses.remote.removeprefix("tcp:")
    if plan.tasks:
        target = scheduler_env.interface_target(
            scheduler_env.meeting_address(config.dist.init_method), target
        )
    return choose_interface(config.dist.interface, target).variables
