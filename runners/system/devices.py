"""Which devices this host has. Lists GPUs through NVML, never torch.

NVML and CUDA may count GPUs in different order: a device is known by its UUID, and ranks get
`CUDA_VISIBLE_DEVICES` made of UUIDs. An index is NVML's, the one `nvidia-smi` shows. A GPU in
MIG mode is listed as its instances, because CUDA shows only the instances.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from distrain.runners.protocol.events import Int

VISIBLE = "CUDA_VISIBLE_DEVICES"


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU (`index` is NVML's) or one CPU process (`index` counts them); memory in bytes."""

    kind: Literal["cpu", "cuda"]
    index: Int
    uuid: str = ""
    name: str = ""
    memory: Int | None = None

    @property
    def label(self) -> str:
        return f"{self.kind}:{self.index}"

    @property
    def is_mig(self) -> bool:
        return self.uuid.startswith("MIG-")


class Gpus(msgspec.Struct, frozen=True):
    """The GPUs that CUDA would show, and why none can be used; `problem` is empty if one can."""

    devices: list[Device]
    problem: str = ""


def look_up_gpus() -> Gpus:
    """Return the GPUs of this host as torch could use them."""
    with nvml():  # one session for both
        return Gpus(devices=gpus(), problem=why_no_gpu())


def gpus() -> list[Device]:
    """Return the GPUs that CUDA would see, in the order of `CUDA_VISIBLE_DEVICES` if it is set.

    The list is empty without a driver; a lost GPU is left out.
    """
    visible = os.environ.get(VISIBLE)
    found = all_gpus()
    return found if visible is None else _visible(visible, found)


def torch_has_cuda() -> bool:
    """Return whether the installed torch is a CUDA build, read from its files."""
    return torch_build().get("cuda") is not None


def torch_build() -> dict[str, str | None]:
    """Return `version` and `cuda` of the installed torch without importing it; empty if absent."""
    import importlib.util  # a list of runs does without

    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    text = (Path(spec.origin).parent / "version.py").read_text()
    return {"version": _assigned(text, "__version__"), "cuda": _assigned(text, "cuda")}


def why_no_gpu() -> str:
    """Return why no GPU can be used here, as the end of a sentence; empty if one can."""
    with nvml() as (_, problem):
        if problem:
            return problem
        if not gpus():
            if VISIBLE in os.environ and all_gpus():
                return f"{VISIBLE}={os.environ[VISIBLE]} hides every GPU"
            return "NVML lists no GPU"
    build = torch_build()
    if not build:
        return "torch is not installed"
    if build["cuda"] is None:
        return f"torch {build['version']} is built without CUDA; install a CUDA build of torch"
    return ""


@contextmanager
def nvml() -> Iterator[tuple[Any, str]]:
    """Open an NVML session: the `pynvml` module, or None and the reason why there is none.

    A session that is never closed ends with the process: to end it, NVML may need a driver that
    does not answer any more.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        yield None, _why_no_nvml(pynvml, error)
        return
    yield pynvml, ""
    pynvml.nvmlShutdown()  # not in a `finally` block, which garbage collection would execute too


def _why_no_nvml(pynvml: Any, error: Any) -> str:
    if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return "there is no NVIDIA driver (libnvidia-ml.so.1 was not found)"
    return f"the NVIDIA driver does not answer: {error}"


def driver_version() -> str | None:
    """Return the version of the NVIDIA driver; None if there is no driver."""
    with nvml() as (lib, _):
        try:
            return None if lib is None else str(lib.nvmlSystemGetDriverVersion())
        except lib.NVMLError:
            return None


def all_gpus() -> list[Device]:
    """Return the GPUs that NVML lists, visible to CUDA or not; a lost one is left out."""
    with nvml() as (lib, _):
        if lib is None:
            return []
        found = []
        for index in range(_count(lib)):
            try:
                handle = lib.nvmlDeviceGetHandleByIndex(index)
                found += [_describe(lib, part, index) for part in _instances(lib, handle)]
            except lib.NVMLError:
                continue
        return found


def _count(lib: Any) -> int:
    try:
        return int(lib.nvmlDeviceGetCount())
    except lib.NVMLError:
        return 0


def _instances(lib: Any, handle: Any) -> list[Any]:
    """Return the GPU itself, or its MIG instances if it is in MIG mode."""
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


def _describe(lib: Any, handle: Any, index: int) -> Device:
    try:
        memory = int(lib.nvmlDeviceGetMemoryInfo(handle).total)
    except lib.NVMLError:
        memory = None
    return Device(
        kind="cuda",
        index=index,
        uuid=lib.nvmlDeviceGetUUID(handle),
        name=lib.nvmlDeviceGetName(handle),
        memory=memory,
    )


def _visible(entries: str, gpus: list[Device]) -> list[Device]:
    """Read the variable as CUDA does: up to the first unusable entry, nothing if one repeats.

    CUDA numbers GPUs fastest first unless `CUDA_DEVICE_ORDER=PCI_BUS_ID`; they are taken in
    NVML's order here, which is the same wherever all GPUs are of one kind.
    """
    found: list[Device] = []
    for entry in entries.split(","):
        matches = matching(entry.strip(), gpus)
        if len(matches) != 1:
            break
        found += matches
    has_duplicates = len({device.uuid for device in found}) < len(found)
    return [] if has_duplicates else found


def matching(entry: str, gpus: list[Device]) -> list[Device]:
    """Return the GPUs that an index, a UUID or the beginning of a UUID means."""
    if re.fullmatch(r"[+-]?\d+", entry):
        return [device for device in gpus if device.index == int(entry)][:1]
    return [device for device in gpus if entry and device.uuid.startswith(entry)]


def _assigned(source: str, name: str) -> str | None:
    found = re.search(rf"^{name}\b[^=\n]*=\s*['\"]([^'\"]*)['\"]", source, re.MULTILINE)
    return found[1] if found else None


# --- the devices of a plan on this host --------------------------------------------------------


def identify(device: Device) -> Device:
    """Return the device with this host's UUID, if the plan contains only an index."""
    if device.kind == "cpu" or device.uuid:
        return device
    found = gpus()
    return found[device.index % len(found)] if found else device


def device_of_rank(devices: list[Device], local_rank: int) -> Device:
    """Return the device of a rank; the only one if its scheduler shows it a single GPU."""
    return devices[local_rank % len(devices)]


def has_device_for(devices: list[Device], local_rank: int) -> bool:
    """Return whether there is a device for a rank that another scheduler has started."""
    return devices[0].kind == "cpu" or len(devices) == 1 or local_rank < len(devices)


def visible_devices(devices: list[Device]) -> str:
    """Return `CUDA_VISIBLE_DEVICES` for the ranks: each GPU's UUID once; empty hides all (CPU)."""
    return ",".join(dict.fromkeys(device.uuid for device in devices if device.kind == "cuda"))
