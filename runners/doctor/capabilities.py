"""Which strategies, launchers and backends are usable here: one function each, from known facts.

Starts no process and loads no torch; `survey` gathers the facts.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from distrain.runners.horovod.presence import Presence
from distrain.runners.system.devices import Device


class HostFacts(msgspec.Struct, frozen=True):
    """What is known about this host and its software.

    `problem`: why torch cannot be loaded; empty if it can.
    `no_gpu`: why no GPU can be used, as the system sees it.
    `cuda_devices`: the number of GPUs that torch can use.
    `cuda_problem`: why torch can use none although it is built with CUDA.
    `backends`: whether torch is built with each backend.
    `failed`: by backend, the reason why it did not work when it was tried.
    """

    gpus: list[Device] = []
    no_gpu: str = ""
    problem: str = ""
    torch: str = ""
    cuda: str | None = None
    nccl: str | None = None
    backends: dict[str, bool] = {}
    cuda_devices: int = 0
    cuda_problem: str = ""
    failed: dict[str, str] = {}
    horovod: Presence = Presence()
    sbatch: bool = False
    slurm_problem: str = ""  # why Slurm does not answer, though its commands are here


class Capability(msgspec.Struct, frozen=True):
    """Whether something is usable, why that is so, and how to fix what is missing."""

    usable: bool
    why: str = ""
    fix: str = msgspec.field(default="", name="mend")


CapabilityCheck = Callable[[HostFacts], Capability]

INSTALL_CUDA = "install a CUDA build of torch (pytorch.org) and the NVIDIA driver"
NO_SBATCH = "sbatch was not found: this is not a login node of a Slurm cluster"
MPI_NEEDS_MPIRUN = "its ranks must be started by mpirun, which no launcher does"

# How to fix a backend that failed. Most often the network interface is the wrong one.
FIX_FAILED = {
    "gloo": "set GLOO_SOCKET_IFNAME to a working interface, e.g. lo on one machine",
    "nccl": "run it with NCCL_DEBUG=INFO, which shows the cause; or use gloo",
}
# How to get a backend that torch is built without.
FIX_MISSING = {
    "gloo": "install a build of torch that has it, e.g. one of pytorch.org",
    "nccl": INSTALL_CUDA,
    "mpi": "build torch from source where MPI is installed; or use gloo",
    "ucc": "build torch from source with USE_UCC=1; or use gloo or nccl",
}


def _check_torch(facts: HostFacts) -> Capability:
    if facts.problem:
        return Capability(False, f"torch cannot be loaded: {facts.problem}", "reinstall torch")
    return Capability(True)


def _check_dp(facts: HostFacts) -> Capability:
    if facts.problem or facts.cuda_devices > 1:
        return _check_torch(facts)
    return Capability(
        True,
        "runs, but nothing is parallel with fewer than two GPUs",
        "use ddp, which also runs on CPU processes",
    )


def _check_process_group(facts: HostFacts) -> Capability:
    if facts.problem:
        return _check_torch(facts)
    usable = [name for name in BACKENDS if BACKENDS[name](facts).usable]
    if not usable:
        why = "no backend of torch's process group is usable"
        return Capability(False, why, "install a build of torch with gloo")
    return Capability(True, f"over {' or '.join(usable)}")


def _check_horovod(facts: HostFacts) -> Capability:
    launcher = _check_horovodrun(facts)
    if not launcher.usable:
        return launcher
    transports = f"over {' or '.join(facts.horovod.transports)}"
    if facts.cuda_devices and not facts.horovod.cuda:
        why = f"{transports}; only on CPU processes, because it is built without CUDA"
        fix = "install a CUDA toolkit and build it again, as docs/horovod.md describes"
        return Capability(True, why, fix)
    return Capability(True, transports)


def _check_horovodrun(facts: HostFacts) -> Capability:
    if facts.problem:
        return _check_torch(facts)
    horovod = facts.horovod
    return Capability(not horovod.why, horovod.why, horovod.fix)


def _check_slurm(facts: HostFacts) -> Capability:
    if facts.problem or (facts.sbatch and not facts.slurm_problem):
        return _check_torch(facts)
    if facts.sbatch:
        return Capability(False, facts.slurm_problem, "check the cluster with sinfo")
    fix = "log in to one; or use torchrun, which can train on several hosts without Slurm"
    return Capability(False, NO_SBATCH, fix)


def _check_gloo(facts: HostFacts) -> Capability:
    return _why_unusable("gloo", facts) or Capability(
        True, "on CPU, and on GPUs through host memory"
    )


def _check_nccl(facts: HostFacts) -> Capability:
    if missing := _why_unusable("nccl", facts):
        return missing
    if facts.cuda_devices == 0:
        return Capability(False, f"no GPU can be used: {_why_no_gpu(facts)}", "use gloo")
    return Capability(True, "one rank per GPU")


def _check_mpi(facts: HostFacts) -> Capability:
    return _why_unusable("mpi", facts) or Capability(False, MPI_NEEDS_MPIRUN, "use gloo or nccl")


def _check_ucc(facts: HostFacts) -> Capability:
    return _why_unusable("ucc", facts) or Capability(True)


def _why_unusable(backend: str, facts: HostFacts) -> Capability | None:
    """Return None if torch has the backend, and it did not fail when it was tried."""
    if facts.problem:
        return _check_torch(facts)
    if reason := facts.failed.get(backend):
        return Capability(False, f"it does not work here: {reason}", FIX_FAILED.get(backend, ""))
    if facts.backends.get(backend):
        return None
    why = f"torch {facts.torch} is built without {backend}"
    return Capability(False, why, FIX_MISSING[backend])


def _why_no_gpu(facts: HostFacts) -> str:
    return facts.no_gpu or facts.cuda_problem or "torch finds none"


STRATEGIES: dict[str, CapabilityCheck] = {
    "single": _check_torch,
    "dp": _check_dp,
    "allreduce": _check_process_group,
    "ddp": _check_process_group,
    "horovod": _check_horovod,
}
LAUNCHERS: dict[str, CapabilityCheck] = {
    "inline": _check_torch,
    "spawn": _check_torch,
    "torchrun": _check_torch,
    "horovodrun": _check_horovodrun,
    "slurm": _check_slurm,
    "env": _check_torch,
}
BACKENDS: dict[str, CapabilityCheck] = {
    "gloo": _check_gloo,
    "nccl": _check_nccl,
    "mpi": _check_mpi,
    "ucc": _check_ucc,
}


def pair_devices(kind: str, facts: HostFacts) -> tuple[str, str]:
    """Return torch's names of the devices on which a pair of ranks is tried."""
    if kind == "cpu":
        return "cpu", "cpu"
    return "cuda:0", "cuda:1" if facts.cuda_devices > 1 else "cuda:0"


def why_not_applicable(backend: str, kind: str, facts: HostFacts) -> str:
    """Return why a backend cannot be tried on a kind of device here; empty if it can."""
    if missing := _why_unusable(backend, facts):
        return missing.why
    if backend == "mpi":
        return MPI_NEEDS_MPIRUN
    if backend == "nccl" and kind == "cpu":
        return "nccl moves data between GPUs only"
    if kind == "cuda" and facts.cuda_devices == 0:
        return f"no GPU can be used: {_why_no_gpu(facts)}"
    if backend == "nccl" and facts.cuda_devices == 1:
        return "fewer than two GPUs, and nccl refuses two ranks on one"
    return ""
