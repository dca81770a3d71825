"""What this machine has to build Horovod with, and what follows for the build.

torch decides: a CPU build of it gets a Horovod for CPU, whatever else is here. A variable that a
person has set is never changed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from hashlib import sha256
from pathlib import Path

import msgspec
import psutil

from runners.devices import torch_build
from runners.errors import InstallError
from runners.horovod.source import VERSION, edits_digest

BYTES_PER_COMPILER = 1.5e9  # torch's headers
MATTERS = re.compile(
    r"HOROVOD_(WITH|GPU|CPU_OPERATIONS|NCCL_|CUDA_|ROCM_|BUILD_|MPI|DEBUG)"
    r"|(CC|CXX|CFLAGS|CXXFLAGS|LDFLAGS|CUDAARCHS)$"
)
VECTORS = ("avx", "f16c", "fma")  # Horovod uses those that the machine has
OLDEST_CMAKE = (3, 13)


class Toolchain(msgspec.Struct, frozen=True):
    """`torch` is a version, `cuda` that of its CUDA; `mpi` the compiler of an MPI, `cuda_home` a
    CUDA toolkit and `nccl` the folder of NCCL's header, each empty where there is none to use.
    """

    torch: str
    cuda: str = ""
    mpi: str = ""
    cuda_home: str = ""
    nccl: str = ""

    @property
    def key(self) -> str:
        """Names what a wheel was built for: the same key, the same wheel."""
        about = [VERSION, edits_digest(), platform.machine(), _vectors(), _set_by_hand()]
        facts = [*about, msgspec.to_builtins(self)]
        digest = sha256(json.dumps(facts).encode()).hexdigest()[:8]
        parts = [sysconfig.get_config_var("SOABI"), f"torch-{self.torch}", *self.extras, digest]
        return "-".join(str(part) for part in parts)

    @property
    def extras(self) -> list[str]:
        """ "cuda12.8", "nccl", "mpi": what there is beside Gloo."""
        cuda = f"cuda{self.cuda}" if self.cuda_home else "cpu"
        return [cuda, *(name for name in ("nccl", "mpi") if getattr(self, name))]

    def environment(self, shelf: Path) -> dict[str, str]:
        """Of the build; links that the wheel needs are made in the folder where it will be kept."""
        ours = {
            "HOROVOD_WITH_PYTORCH": "1",
            "HOROVOD_WITH_GLOO": "1",
            "HOROVOD_WITHOUT_TENSORFLOW": "1",
            "HOROVOD_WITHOUT_MXNET": "1",
            "HOROVOD_LOCAL_VERSION": "distrain",
            "MAKEFLAGS": f"-j{_jobs()}",
            "CMAKE_GENERATOR": "Unix Makefiles",
        }
        if not self.mpi and os.environ.get("HOROVOD_WITH_MPI") != "1":
            ours["HOROVOD_WITHOUT_MPI"] = "1"
        if self.cuda_home:
            ours |= self._with_cuda(shelf)
        else:
            ours |= {"HOROVOD_WITHOUT_CUDA": "1", "HOROVOD_WITHOUT_NVTX": "1"}
        bare = {"LDFLAGS": f"{os.environ.get('LDFLAGS', '')} -Wl,-s".strip()}  # no symbols
        return {**ours, **os.environ, **bare, "PATH": os.pathsep.join(self._path())}

    def _path(self) -> list[str]:
        """Horovod asks the first nvcc there which GPUs it knows."""
        compilers = [f"{self.cuda_home}/bin"] if self.cuda_home else []
        return [*compilers, os.environ.get("PATH", os.defpath)]

    def _with_cuda(self, shelf: Path) -> dict[str, str]:
        ours = {"HOROVOD_CUDA_HOME": self.cuda_home, "CUDA_HOME": self.cuda_home}
        if self.nccl and not any(name.startswith("HOROVOD_GPU") for name in os.environ):
            ours["HOROVOD_GPU_OPERATIONS"] = "NCCL"
        if self.nccl == _nccl_of_torch():
            ours |= _linkable(Path(self.nccl).parent, shelf)
        return ours


def look() -> Toolchain:
    """What there is. Raises InstallError where something is missing that a build cannot do without,
    with the command that brings it.
    """
    torch = torch_build()
    if not torch:
        raise InstallError("torch is not installed, for which Horovod is to be built")
    if importlib.util.find_spec("pip") is None:
        raise InstallError("pip is not installed here; `python -m ensurepip` brings it")
    compiler = os.environ.get("CXX", "g++").split()[0]
    for tool in (compiler, "make"):
        if shutil.which(tool) is None:
            mend = "`apt-get install build-essential` brings it on Debian"
            raise InstallError(f"{tool} was not found, with which Horovod is built; {mend}")
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        mend = "`apt-get install python3-dev` brings it on Debian"
        raise InstallError(f"{headers} has no Python.h, which Horovod's build needs; {mend}")
    cuda = torch["cuda"] or ""
    cuda_home = _cuda_home(cuda) if cuda else ""
    return Toolchain(
        torch=torch["version"] or "",
        cuda=cuda,
        mpi=_mpi(),
        cuda_home=cuda_home,
        nccl=_nccl(cuda_home) if cuda_home else "",
    )


def has_cmake() -> bool:
    """Whether there is one that is new enough."""
    try:
        said = subprocess.run(["cmake", "--version"], capture_output=True, text=True).stdout
    except OSError:
        return False
    found = re.search(r"version (\d+)\.(\d+)", said)
    return found is not None and (int(found[1]), int(found[2])) >= OLDEST_CMAKE


def _mpi() -> str:
    """Where the compiler of an MPI really lies, which tells one MPI from another."""
    if os.environ.get("HOROVOD_WITHOUT_MPI") == "1":
        return ""
    found = shutil.which("mpicxx") or shutil.which("mpic++")
    return os.path.realpath(found) if found else ""


def _cuda_home(version: str) -> str:
    """The first toolkit with a compiler: the one that a person names, then that of torch."""
    compiler = shutil.which("nvcc")
    named = [os.environ.get(name, "") for name in ("HOROVOD_CUDA_HOME", "CUDA_HOME", "CUDA_PATH")]
    beside = [str(Path(os.path.realpath(compiler)).parents[1])] if compiler else []
    places = [*named, f"/usr/local/cuda-{version}", *beside, "/usr/local/cuda"]
    return next((place for place in places if place and Path(place, "bin/nvcc").exists()), "")


def _nccl(cuda_home: str) -> str:
    """The folder of nccl.h: the one that a person names, then torch's own, then the system's."""
    named = os.environ.get("HOROVOD_NCCL_HOME")
    places = [os.environ.get("HOROVOD_NCCL_INCLUDE", ""), f"{named}/include" if named else ""]
    places += [_nccl_of_torch(), f"{cuda_home}/include", "/usr/include"]
    return next((place for place in places if place and Path(place, "nccl.h").exists()), "")


def _nccl_of_torch() -> str:
    """In the package that CUDA builds of torch bring along."""
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return ""
    places = spec.submodule_search_locations if spec else None
    return f"{next(iter(places))}/include" if places else ""


def _linkable(nccl: Path, folder: Path) -> dict[str, str]:
    """NCCL's package lacks the name without a number, by which a linker looks for a library."""
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "libnccl.so"
    link.unlink(missing_ok=True)
    link.symlink_to(nccl / "lib" / "libnccl.so.2")
    return {
        "HOROVOD_NCCL_INCLUDE": str(nccl / "include"),
        "HOROVOD_NCCL_LIB": str(folder),
        "HOROVOD_NCCL_LINK": "SHARED",
    }


def _jobs() -> int:
    threads = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, min(threads, int(psutil.virtual_memory().available / BYTES_PER_COMPILER)))


def _vectors() -> list[str]:
    """A home may be shared by machines that are not alike."""
    try:
        flags = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return []
    return [name for name in VECTORS if name in flags]


def _set_by_hand() -> dict[str, str]:
    return {name: text for name, text in sorted(os.environ.items()) if MATTERS.match(name)}
