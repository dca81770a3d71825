"""Which devices there are and which of them a run uses. Lists GPUs through NVML, never torch.

NVML and CUDA may count GPUs in different order: a device is known by its UUID, and ranks get
`CUDA_VISIBLE_DEVICES` made of UUIDs. An index is NVML's, the one `nvidia-smi` shows. A GPU in
MIG mode is listed as its instances, for CUDA sees nothing else of it.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from runners.config import ONE_PROCESS, RunConfig
from runners.errors import ConfigError
from runners.rendezvous import Task

VISIBLE = "CUDA_VISIBLE_DEVICES"


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU (`index` is NVML's) or one CPU process (`index` counts them); memory in bytes."""

    kind: Literal["cpu", "cuda"]
    index: int
    uuid: str = ""
    name: str = ""
    memory: int | None = None

    @property
    def label(self) -> str:
        return f"{self.kind}:{self.index}"


# --- what there is -----------------------------------------------------------------------------


def gpus() -> list[Device]:
    """The GPUs that CUDA would see, in the order of `CUDA_VISIBLE_DEVICES` where that is set.

    Empty without a driver; a lost GPU is left out.
    """
    wanted = os.environ.get(VISIBLE)
    there = all_gpus()
    return there if wanted is None else _visible(wanted, there)


def torch_has_cuda() -> bool:
    """Whether the installed torch is a CUDA build, read from its files without importing it."""
    return torch_build().get("cuda") is not None


def torch_build() -> dict[str, str | None]:
    """`version` and `cuda` of the installed torch, not imported; empty without one."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    text = (Path(spec.origin).parent / "version.py").read_text()
    return {"version": _assigned(text, "__version__"), "cuda": _assigned(text, "cuda")}


def why_no_gpu() -> str:
    """Why no GPU can be used here, as the end of a sentence; empty where one can."""
    with nvml() as (_, complaint):
        if complaint:
            return complaint
        if not gpus():
            hidden = VISIBLE in os.environ and all_gpus()
            limit = f"{VISIBLE}={os.environ[VISIBLE]} hides every GPU" if hidden else ""
            return limit or "NVML lists no GPU"
    build = torch_build()
    if not build:
        return "torch is not installed"
    if build["cuda"] is None:
        return f"torch {build['version']} is built without CUDA; install a CUDA build of torch"
    return ""


@contextmanager
def nvml() -> Iterator[tuple[Any, str]]:
    """An NVML session: the `pynvml` module, or None and the reason why there is none."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        yield None, _absence(pynvml, error)
        return
    try:
        yield pynvml, ""
    finally:
        pynvml.nvmlShutdown()


def _absence(pynvml: Any, error: Any) -> str:
    if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return "there is no NVIDIA driver (libnvidia-ml.so.1 was not found)"
    return f"the NVIDIA driver does not answer: {error}"


def driver_version() -> str | None:
    """Of the NVIDIA driver; None where there is none."""
    with nvml() as (lib, _):
        try:
            return None if lib is None else str(lib.nvmlSystemGetDriverVersion())
        except lib.NVMLError:
            return None


def all_gpus() -> list[Device]:
    """The GPUs that NVML lists, whatever `CUDA_VISIBLE_DEVICES` says; a lost one is left out."""
    with nvml() as (lib, _):
        if lib is None:
            return []
        found = []
        for index in range(_count(lib)):
            try:
                handle = lib.nvmlDeviceGetHandleByIndex(index)
                found += [_described(lib, part, index) for part in _instances(lib, handle)]
            except lib.NVMLError:
                continue
        return found


def _count(lib: Any) -> int:
    try:
        return int(lib.nvmlDeviceGetCount())
    except lib.NVMLError:
        return 0


def _instances(lib: Any, handle: Any) -> list[Any]:
    """The GPU itself, or its MIG instances where it is cut up."""
    try:
        if lib.nvmlDeviceGetMigMode(handle)[0] != lib.NVML_DEVICE_MIG_ENABLE:
            return [handle]
        slots = lib.nvmlDeviceGetMaxMigDeviceCount(handle)
    except lib.NVMLError:
        return [handle]
    parts = []
    for slot in range(slots):
        try:
            parts.append(lib.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot))
        except lib.NVMLError:
            continue
    return parts


def _described(lib: Any, handle: Any, index: int) -> Device:
    try:
        memory = int(lib.nvmlDeviceGetMemoryInfo(handle).total)
    except lib.NVMLError:
        memory = None
    uuid, name = lib.nvmlDeviceGetUUID(handle), lib.nvmlDeviceGetName(handle)
    return Device(kind="cuda", index=index, uuid=uuid, name=name, memory=memory)


def _visible(wanted: str, there: list[Device]) -> list[Device]:
    """CUDA's reading of the variable: up to the first entry it cannot use, nothing if one repeats.

    CUDA numbers GPUs fastest first unless `CUDA_DEVICE_ORDER=PCI_BUS_ID`; they are taken in
    NVML's order here, which is the same wherever all GPUs are of one kind.
    """
    seen: list[Device] = []
    for entry in wanted.split(","):
        matches = _matching(_as_number(entry.strip()), there)
        if len(matches) != 1:
            break
        seen += matches
    return seen if len({device.uuid for device in seen}) == len(seen) else []


def _as_number(entry: str) -> int | str:
    return int(entry) if re.fullmatch(r"[+-]?\d+", entry) else entry


def _matching(wanted: int | str, there: list[Device]) -> list[Device]:
    if isinstance(wanted, int):
        return [device for device in there if device.index == wanted][:1]
    return [device for device in there if wanted and device.uuid.startswith(wanted)]


def _assigned(source: str, name: str) -> str | None:
    found = re.search(rf"^{name}\b[^=\n]*=\s*['\"]([^'\"]*)['\"]", source, re.MULTILINE)
    return found[1] if found else None


# --- what a run takes --------------------------------------------------------------------------


def devices_for(config: RunConfig) -> list[Device]:
    """One device per rank (under `dp` one per replica), as `config.devices` asks.

    Raises ConfigError (key `devices`) for a GPU that does not exist or cannot be used.
    """
    choice = config.devices
    if config.launcher == "slurm":
        return _of_a_node(config)
    if choice == "auto":
        return _automatic(config)
    if choice == "all":
        return _whole(_usable_gpus())
    if isinstance(choice, str):
        if choice.partition(":")[0] == "cpu":
            return _cpus(_cpu_count(choice))
        choice = [entry.strip() for entry in choice.split(",")]
    return _listed(choice)


def found_here(device: Device) -> Device:
    """A device of the plan as this host knows it, where the plan knew only its number."""
    if device.kind == "cpu" or device.uuid:
        return device
    there = gpus()
    return there[device.index % len(there)] if there else device


def of_rank(devices: list[Device], local_rank: int) -> Device:
    """The device of a rank; where its scheduler shows it one GPU alone, that."""
    return devices[local_rank % len(devices)]


def usable(devices: list[Device], local_rank: int) -> bool:
    """Whether there is a device for a rank that another's scheduler has started."""
    return devices[0].kind == "cpu" or len(devices) == 1 or local_rank < len(devices)


def visible_devices(devices: list[Device]) -> str:
    """`CUDA_VISIBLE_DEVICES` for the ranks: each GPU's UUID once; empty hides all (CPU)."""
    return ",".join(dict.fromkeys(device.uuid for device in devices if device.kind == "cuda"))


def _of_a_node(config: RunConfig) -> list[Device]:
    """What each node of a Slurm job will have: which GPUs these are is known there only."""
    if config.devices != "auto":
        raise _wrong("Slurm gives the devices: leave it at auto, set slurm.gpus_per_node and such")
    slurm = config.slurm
    ranks = slurm.tasks_per_node or max(1, slurm.gpus_per_node)
    if not slurm.gpus_per_node:
        return _cpus(ranks)
    if config.strategy == "dp":
        ranks = slurm.gpus_per_node
    return [Device(kind="cuda", index=index) for index in range(ranks)]


def _automatic(config: RunConfig) -> list[Device]:
    there = _whole(gpus()) if torch_has_cuda() else []
    if config.launcher == "env" and config.strategy not in ONE_PROCESS:
        size = Task.here().local_size
        return there[:size] or _cpus(size)
    if there:
        return there[:1] if config.strategy == "single" else there
    return _cpus(1 if config.strategy in ONE_PROCESS else 2)


def _whole(there: list[Device]) -> list[Device]:
    """All whole GPUs, else one MIG instance: CUDA gives a process no more than one."""
    return [device for device in there if not _is_mig(device)] or there[:1]


def _is_mig(device: Device) -> bool:
    return device.uuid.startswith("MIG-")


def _cpus(count: int) -> list[Device]:
    return [Device(kind="cpu", index=index) for index in range(count)]


def _cpu_count(choice: str) -> int:
    digits = choice.removeprefix("cpu:")
    if not re.fullmatch(r"0*[1-9][0-9]{0,4}", digits):
        raise _wrong(f'"cpu:N" wants a whole number from 1 to 99999, e.g. "cpu:4", not {choice!r}')
    return int(digits)


def _usable_gpus() -> list[Device]:
    with nvml():
        if reason := why_no_gpu():
            raise _wrong(f"no GPU can be used: {reason}")
        return gpus()


def _listed(entries: list[int | str] | list[str]) -> list[Device]:
    """GPUs by index, UUID or the beginning of one; all complaints at once."""
    for entry in entries:
        if isinstance(entry, str) and not re.match(r"[+-]?\d+$|GPU-|MIG-", entry):
            raise _wrong(f'must be "auto", "all", "cpu:N" or GPU indices or UUIDs, not {entry!r}')
    if not entries:
        raise _wrong('the list is empty; "auto" takes what there is')
    there = _usable_gpus()
    chosen, problems = [], []
    for entry in entries:
        matches = _matching(_as_number(str(entry)), there)
        if len(matches) == 1:
            chosen += matches
        elif matches:
            names = ", ".join(device.uuid for device in matches)
            problems.append(f"{entry} begins the UUIDs of {len(matches)} GPUs: {names}")
        else:
            problems.append(f"there is no GPU {entry}; {_inventory(there)}")
    if len(chosen) > 1 and any(_is_mig(device) for device in chosen):
        problems.append("CUDA lets a process use one MIG instance: name a single one")
    if problems:
        raise ConfigError([("devices", text) for text in problems])
    return chosen


def _inventory(there: list[Device]) -> str:
    limit = f" ({VISIBLE}={os.environ[VISIBLE]})" if VISIBLE in os.environ else ""
    names = ", ".join(f"{device.index} {device.name} {device.uuid}" for device in there)
    return f"there {'is' if len(there) == 1 else 'are'} {names}{limit}"


def _wrong(text: str) -> ConfigError:
    return ConfigError([("devices", text)])
