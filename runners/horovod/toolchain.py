"""What this machine has to build Horovod with, and the settings of the build.

torch decides the kind: a CPU build of torch gets a Horovod for CPU, whatever else is installed. A
variable that the user has set is never changed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sysconfig
from hashlib import sha256
from pathlib import Path

import msgspec
import psutil

from distrain.runners.errors import InstallError
from distrain.runners.horovod.source import VERSION, patches_digest
from distrain.runners.system.devices import torch_build
from distrain.runners.system.host import count_cores, memory

BYTES_PER_COMPILER = 1.5e9  # a compiler needs it for torch's headers
# Variables that change what is built.
BUILD_VARIABLES = re.compile(
    r"HOROVOD_(WITH|GPU|CPU_OPERATIONS|NCCL_|CUDA_|ROCM_|BUILD_|MPI|DEBUG)"
    r"|(CC|CXX|CFLAGS|CXXFLAGS|LDFLAGS|CUDAARCHS)$"
)
VECTOR_EXTENSIONS = ("avx", "f16c", "fma")  # Horovod uses those that the processor has
MIN_CMAKE = (3, 13)


class Toolchain(msgspec.Struct, frozen=True):
    """What a wheel is built with; a text is empty where there is nothing to use.

    `torch`: its version.
    `cuda`: the version of torch's CUDA.
    `mpi`: the path of MPI's compiler.
    `cuda_home`: the folder of the CUDA toolkit.
    `nccl`: the folder of NCCL's header.
    """

    torch: str
    cuda: str = ""
    mpi: str = ""
    cuda_home: str = ""
    nccl: str = ""

    @property
    def key(self) -> str:
        """The name of a wheel's folder in the cache: wheels with the same key are the same."""
        facts = [
            VERSION,
            patches_digest(),
            platform.machine(),
            _vector_extensions(),
            _build_variables(),
            msgspec.to_builtins(self),
        ]
        digest = sha256(json.dumps(facts).encode()).hexdigest()[:8]
        parts = [sysconfig.get_config_var("SOABI"), f"torch-{self.torch}", *self.extras, digest]
        return "-".join(str(part) for part in parts)

    @property
    def extras(self) -> list[str]:
        """What is built in addition to Gloo, e.g. "cuda12.8", "nccl" and "mpi"."""
        cuda = f"cuda{self.cuda}" if self.cuda_home else "cpu"
        return [cuda, *(name for name in ("nccl", "mpi") if getattr(self, name))]

    def environment(self, wheel_folder: Path) -> dict[str, str]:
        """Return the environment of the build.

        Creates links that the wheel needs in the folder where it will be cached.
        """
        settings = {
            "HOROVOD_WITH_PYTORCH": "1",
            "HOROVOD_WITH_GLOO": "1",
            "HOROVOD_WITHOUT_TENSORFLOW": "1",
            "HOROVOD_WITHOUT_MXNET": "1",
            "HOROVOD_LOCAL_VERSION": "distrain",
            "MAKEFLAGS": f"-j{_jobs()}",
            "CMAKE_GENERATOR": "Unix Makefiles",
        }
        if not self.mpi and os.environ.get("HOROVOD_WITH_MPI") != "1":
            settings["HOROVOD_WITHOUT_MPI"] = "1"
        if self.cuda_home:
            settings |= self._cuda_settings(wheel_folder)
        else:
            settings |= {"HOROVOD_WITHOUT_CUDA": "1", "HOROVOD_WITHOUT_NVTX": "1"}
        changed = {
            "LDFLAGS": f"{os.environ.get('LDFLAGS', '')} -Wl,-s".strip(),  # strips the symbols
            "PATH": self._path(),
        }
        return {**settings, **os.environ, **changed}

    def _path(self) -> str:
        # Horovod asks the first nvcc of the path which GPUs it supports.
        path = os.environ.get("PATH", os.defpath)
        return f"{self.cuda_home}/bin{os.pathsep}{path}" if self.cuda_home else path

    def _cuda_settings(self, wheel_folder: Path) -> dict[str, str]:
        settings = {"HOROVOD_CUDA_HOME": self.cuda_home, "CUDA_HOME": self.cuda_home}
        if self.nccl and not any(name.startswith("HOROVOD_GPU") for name in os.environ):
            settings["HOROVOD_GPU_OPERATIONS"] = "NCCL"
        if self.nccl and self.nccl == _nccl_of_torch():
            settings |= _link_nccl(Path(self.nccl).parent, wheel_folder)
        return settings


def find_toolchain() -> Toolchain:
    """Return what this machine has.

    Raises InstallError where a requirement of every build is missing, with the command that
    installs it.
    """
    torch = torch_build()
    if not torch:
        raise InstallError("torch is not installed; install it first: Horovod is built for it")
    if importlib.util.find_spec("pip") is None:
        raise InstallError("pip is not installed; install it with `python -m ensurepip`")
    compiler = os.environ.get("CXX", "g++").split()[0]
    for tool in (compiler, "make"):
        if shutil.which(tool) is None:
            fix = "on Debian install it with `apt-get install build-essential`"
            raise InstallError(f"{tool} was not found, but Horovod's build needs it; {fix}")
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        fix = "on Debian install it with `apt-get install python3-dev`"
        raise InstallError(f"{headers} has no Python.h, which Horovod's build needs; {fix}")
    cuda = torch["cuda"] or ""
    cuda_home = _find_cuda_home(cuda) if cuda else ""
    return Toolchain(
        torch=torch["version"] or "",
        cuda=cuda,
        mpi=_find_mpi(),
        cuda_home=cuda_home,
        nccl=_find_nccl(cuda_home) if cuda_home else "",
    )


def has_cmake() -> bool:
    """Return whether a CMake is installed that is new enough."""
    try:
        output = subprocess.run(["cmake", "--version"], capture_output=True, text=True).stdout
    except OSError:
        return False
    found = re.search(r"version (\d+)\.(\d+)", output)
    return found is not None and (int(found[1]), int(found[2])) >= MIN_CMAKE


def _find_mpi() -> str:
    """Return the real path of MPI's compiler, which distinguishes one MPI from another."""
    if os.environ.get("HOROVOD_WITHOUT_MPI") == "1":
        return ""
    found = shutil.which("mpicxx") or shutil.which("mpic++")
    return os.path.realpath(found) if found else ""


def _find_cuda_home(version: str) -> str:
    """Return the first toolkit with a compiler: one that the user has set, then that of torch."""
    variables = ("HOROVOD_CUDA_HOME", "CUDA_HOME", "CUDA_PATH")
    folders = [os.environ.get(name, "") for name in variables]
    folders.append(f"/usr/local/cuda-{version}")
    if compiler := shutil.which("nvcc"):
        folders.append(str(Path(os.path.realpath(compiler)).parents[1]))
    folders.append("/usr/local/cuda")
    return _first_with("bin/nvcc", folders)


def _find_nccl(cuda_home: str) -> str:
    """Return the folder of nccl.h: one that the user has set, then torch's, then the system's."""
    nccl_home = os.environ.get("HOROVOD_NCCL_HOME")
    folders = [
        os.environ.get("HOROVOD_NCCL_INCLUDE", ""),
        f"{nccl_home}/include" if nccl_home else "",
        _nccl_of_torch(),
        f"{cuda_home}/include",
        "/usr/include",
    ]
    return _first_with("nccl.h", folders)


def _first_with(file: str, folders: list[str]) -> str:
    for folder in folders:
        if folder and Path(folder, file).exists():
            return folder
    return ""


def _nccl_of_torch() -> str:
    """Return the folder of the header in the package that CUDA builds of torch require."""
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return ""
    folders = spec.submodule_search_locations if spec else None
    return f"{next(iter(folders))}/include" if folders else ""


def _link_nccl(nccl: Path, folder: Path) -> dict[str, str]:
    """Link NCCL's library under the name without a version, which linkers search for.

    NCCL's package does not have it. Returns the settings that make the build use the link.
    """
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
    """Return how many compilers may run at once."""
    total, used = memory()
    free = min(psutil.virtual_memory().available, total - used)
    return max(1, min(count_cores(), int(free / BYTES_PER_COMPILER)))


def _vector_extensions() -> list[str]:
    """Return the vector extensions of this processor.

    They are part of the key because hosts that share a home folder may differ.
    """
    try:
        flags = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return []
    return [name for name in VECTOR_EXTENSIONS if name in flags]


def _build_variables() -> dict[str, str]:
    """Return the variables of the environment that change what is built."""
    variables = sorted(os.environ.items())
    return {name: text for name, text in variables if BUILD_VARIABLES.match(name)}
