"""Which devices of a host a config takes."""

from __future__ import annotations

import re

from distrain.runners.config.field_types import ONE_PROCESS
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError
from distrain.runners.system.devices import VISIBLE, Device, matching, torch_has_cuda
from distrain.runners.system.host import Host
from distrain.runners.system.scheduler_env import ScheduledRank


def needs_gpus(config: RunConfig) -> bool:
    """Return whether the choice depends on the host's GPUs, so that they must be looked up."""
    if config.launcher == "slurm":
        return False
    if config.devices == "auto":
        return torch_has_cuda()
    return not isinstance(config.devices, str) or not _is_cpu(config.devices)


def choose_devices(config: RunConfig, host: Host) -> list[Device]:
    """Return one device per rank (under `dp` one per replica), as `config.devices` asks.

    Raises ConfigError (key `devices`) for a GPU that does not exist or cannot be used.
    """
    choice = config.devices
    if config.launcher == "slurm":
        return _slurm_devices(config)
    if choice == "auto":
        return _automatic(config, host)
    if choice == "all":
        return _whole(_usable_gpus(host))
    if isinstance(choice, str):
        if _is_cpu(choice):
            return _cpus(_cpu_count(choice))
        choice = [entry.strip() for entry in choice.split(",")]
    return _listed([str(entry) for entry in choice], host)


def _slurm_devices(config: RunConfig) -> list[Device]:
    """Return the devices of each node of a job; their UUIDs are known on the nodes only."""
    if config.devices != "auto":
        raise _error("Slurm assigns the devices: leave it at auto and set slurm.gpus_per_node")
    slurm = config.slurm
    ranks = slurm.tasks_per_node or max(1, slurm.gpus_per_node)
    if not slurm.gpus_per_node:
        return _cpus(ranks)
    if config.strategy == "dp":
        ranks = slurm.gpus_per_node
    return [Device(kind="cuda", index=index) for index in range(ranks)]


def _automatic(config: RunConfig, host: Host) -> list[Device]:
    usable = _whole(host.gpus.devices) if host.gpus and not host.gpus.problem else []
    if config.launcher == "env" and config.strategy not in ONE_PROCESS:
        size = ScheduledRank.of(host.environment).local_size
        return usable[:size] or _cpus(size)
    if usable:
        return usable[:1] if config.strategy == "single" else usable
    return _cpus(1 if config.is_one_process else 2)


def _whole(gpus: list[Device]) -> list[Device]:
    """Return all whole GPUs, else one MIG instance: CUDA gives a process no more than one."""
    return [device for device in gpus if not device.is_mig] or gpus[:1]


def _is_cpu(choice: str) -> bool:
    return choice.partition(":")[0] == "cpu"


def _cpus(count: int) -> list[Device]:
    return [Device(kind="cpu", index=index) for index in range(count)]


def _cpu_count(choice: str) -> int:
    digits = choice.removeprefix("cpu:")
    if not re.fullmatch(r"0*[1-9][0-9]{0,4}", digits):
        text = (
            f'"cpu:N" starts N processes on the CPU, e.g. "cpu:4" four; N is a whole number from 1 '
            f"to 99999, not as in {choice!r}"
        )
        raise _error(text)
    return int(digits)


def _usable_gpus(host: Host) -> list[Device]:
    assert host.gpus is not None, "looked up where needs_gpus() says so"
    if host.gpus.problem:
        raise _error(f"no GPU can be used: {host.gpus.problem}")
    return host.gpus.devices


def _listed(entries: list[str], host: Host) -> list[Device]:
    """Return GPUs by index, UUID or the beginning of one; raises all problems at once."""
    for entry in entries:
        if not re.match(r"[+-]?\d+$|GPU-|MIG-", entry):
            text = f'must be "auto", "all", "cpu:N" or GPU indices or UUIDs, not {entry!r}'
            raise _error(text)
    if not entries:
        raise _error('the list is empty; "auto" takes all usable GPUs, else CPU processes')
    gpus = _usable_gpus(host)
    chosen = []
    problems = []
    for entry in entries:
        matches = matching(entry, gpus)
        if len(matches) == 1:
            chosen += matches
        elif matches:
            names = ", ".join(device.uuid for device in matches)
            problems.append(f"{entry} begins the UUIDs of {len(matches)} GPUs: {names}")
        else:
            problems.append(f"there is no GPU {entry}; {_inventory(gpus, host)}")
    if len(chosen) > 1 and any(device.is_mig for device in chosen):
        problems.append("CUDA lets a process use one MIG instance: name a single one")
    if problems:
        raise ConfigError([("devices", text) for text in problems])
    return chosen


def _inventory(gpus: list[Device], host: Host) -> str:
    visible = host.environment.get(VISIBLE)
    limit = f" ({VISIBLE}={visible})" if visible is not None else ""
    names = ", ".join(f"{device.index} {device.name} {device.uuid}" for device in gpus)
    return f"there {'is' if len(gpus) == 1 else 'are'} {names}{limit}"


def _error(text: str) -> ConfigError:
    return ConfigError([("devices", text)])
