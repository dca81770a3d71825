"""Which strategies, launchers and backends are usable here: one row each, from known facts.

Starts nothing and loads no torch; `doctor.py` gathers the facts.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from runners.devices import Device
from runners.horovod.presence import Presence


class Facts(msgspec.Struct, frozen=True):
    """What the verdicts are made from.

    `problem` says why torch cannot even be loaded, `failed` why a backend did not work when
    it was tried.
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


class Verdict(msgspec.Struct, frozen=True):
    """`why` it is so, in a sentence, and where something is amiss the way to `mend` it."""

    usable: bool
    why: str = ""
    mend: str = ""


CUDA_MEND = "install a CUDA build of torch (pytorch.org) and the NVIDIA driver"


def _torch_loads(facts: Facts) -> Verdict:
    if facts.problem:
        return Verdict(False, f"torch cannot be loaded: {facts.problem}", "reinstall torch")
    return Verdict(True)


def _dp(facts: Facts) -> Verdict:
    if facts.problem or facts.cuda_devices > 1:
        return _torch_loads(facts)
    return Verdict(
        True,
        "runs, but nothing is parallel with fewer than two GPUs",
        "use ddp, which runs on CPU processes as well",
    )


def _process_group(facts: Facts) -> Verdict:
    if facts.problem:
        return _torch_loads(facts)
    usable = [name for name in BACKENDS if BACKENDS[name](facts).usable]
    if not usable:
        return Verdict(False, "no process-group backend is usable", "install a torch with gloo")
    return Verdict(True, f"over {' or '.join(usable)}")


def _horovod(facts: Facts) -> Verdict:
    missing, built = _horovod_loads(facts), facts.horovod
    if not missing.usable:
        return missing
    over = f"over {' or '.join(built.transports)}"
    if facts.cuda_devices and not built.cuda:
        mend = "put a CUDA toolkit beside it and build it anew, as docs/horovod.md tells"
        return Verdict(True, f"{over}; on CPU processes only, it is built without CUDA", mend)
    return Verdict(True, over)


def _horovod_loads(facts: Facts) -> Verdict:
    if facts.problem:
        return _torch_loads(facts)
    why, mend = facts.horovod.why, facts.horovod.mend
    return Verdict(not why, why, mend)


def _slurm(facts: Facts) -> Verdict:
    if facts.sbatch:
        return _torch_loads(facts)
    why = "there is no sbatch: this is no login node of a Slurm cluster"
    return Verdict(False, why, "go to one; or use torchrun, which joins several hosts by itself")


def _gloo(facts: Facts) -> Verdict:
    return _unusable("gloo", facts) or Verdict(True, "CPU, and GPUs by way of host memory")


def _nccl(facts: Facts) -> Verdict:
    if missing := _unusable("nccl", facts):
        return missing
    if facts.cuda_devices == 0:
        return Verdict(False, f"no GPU can be used: {_cuda_reason(facts)}", "use gloo")
    return Verdict(True, "one rank per GPU")


def _mpi(facts: Facts) -> Verdict:
    return _unusable("mpi", facts) or Verdict(False, MPI_NEEDS_MPIRUN, "use gloo or nccl")


def _ucc(facts: Facts) -> Verdict:
    return _unusable("ucc", facts) or Verdict(True)


def _unusable(name: str, facts: Facts) -> Verdict | None:
    """None where this torch has the backend, and it did not fail when it was tried."""
    if facts.problem:
        return _torch_loads(facts)
    if reason := facts.failed.get(name):
        return Verdict(False, f"it does not work here: {reason}", FAILED_MEND.get(name, ""))
    if facts.backends.get(name):
        return None
    mend = {
        "gloo": "install a torch that has it, as the builds of pytorch.org do",
        "nccl": CUDA_MEND,
        "mpi": "build torch from source beside an MPI; or use gloo",
        "ucc": "build torch from source with USE_UCC=1; or use gloo or nccl",
    }
    return Verdict(False, f"torch {facts.torch} is built without {name}", mend[name])


def _cuda_reason(facts: Facts) -> str:
    return facts.no_gpu or facts.cuda_problem or "torch finds none"


# What goes wrong most is the choice of the network interface.
FAILED_MEND = {
    "gloo": "set GLOO_SOCKET_IFNAME to a working interface, e.g. lo on one machine",
    "nccl": "run it with NCCL_DEBUG=INFO, which names the cause; or use gloo",
}
MPI_NEEDS_MPIRUN = "ranks must be started by mpirun, which no launcher here does"

Check = Callable[[Facts], Verdict]
STRATEGIES: dict[str, Check] = {
    "single": _torch_loads,
    "dp": _dp,
    "allreduce": _process_group,
    "ddp": _process_group,
    "horovod": _horovod,
}
LAUNCHERS: dict[str, Check] = {
    "inline": _torch_loads,
    "spawn": _torch_loads,
    "torchrun": _torch_loads,
    "horovodrun": _horovod_loads,
    "slurm": _slurm,
    "env": _torch_loads,
}
BACKENDS: dict[str, Check] = {"gloo": _gloo, "nccl": _nccl, "mpi": _mpi, "ucc": _ucc}


def pair_devices(kind: str, facts: Facts) -> tuple[str, str]:
    """torch's names of the devices that two ranks are tried on."""
    if kind == "cpu":
        return "cpu", "cpu"
    return "cuda:0", "cuda:1" if facts.cuda_devices > 1 else "cuda:0"


def not_applicable(backend: str, kind: str, facts: Facts) -> str:
    """Why a backend has no business on a kind of device here; empty where it can be tried."""
    if missing := _unusable(backend, facts):
        return missing.why
    if backend == "mpi":
        return MPI_NEEDS_MPIRUN
    if backend == "nccl" and kind == "cpu":
        return "nccl moves data between GPUs only"
    if kind == "cuda" and facts.cuda_devices == 0:
        return f"no GPU can be used: {_cuda_reason(facts)}"
    if backend == "nccl" and facts.cuda_devices == 1:
        return "fewer than two GPUs, and nccl refuses two ranks on one"
    return ""
