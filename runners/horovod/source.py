"""Horovod's source: the release, and the patches without which it does not build or work."""

from __future__ import annotations

import json
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from distrain.runners.errors import InstallError

VERSION = "0.28.1"
REQUIREMENT = f"horovod=={VERSION}"
SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"


class Patch(NamedTuple):
    """Replaces `before`, which is in the file exactly once, by `after`."""

    file: str
    before: str
    after: str


PATCHES = (
    # torch's headers require C++17.
    Patch("CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)"),
    Patch(
        "horovod/torch/CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)"
    ),
    # CMake 4 refuses projects with a minimum version below 3.5.
    Patch(
        "third_party/gloo/CMakeLists.txt",
        "cmake_minimum_required(VERSION 2.8.12 FATAL_ERROR)",
        "cmake_minimum_required(VERSION 3.13 FATAL_ERROR)",
    ),
    # The vector is written beyond its size, so the list of ranks stays empty. The stall inspector
    # then never reports a missing rank, and the job waits forever.
    Patch(
        "horovod/common/gloo/gloo_controller.cc",
        "global_ranks_.reserve(size_);",
        "global_ranks_.resize(size_);",
    ),
    # Process sets ignore the configured interface and use the address of the host name, which
    # other hosts often cannot reach.
    Patch(
        "horovod/common/gloo/gloo_context.cc",
        "device_attr.iface = gloo_iface_;\n"
        "  device_attr.ai_family = AF_UNSPEC;\n"
        "  auto dev = CreateDevice(device_attr);\n\n"
        "  global_ctx",
        "device_attr.iface = global_context.gloo_iface_;\n"
        "  device_attr.ai_family = AF_UNSPEC;\n"
        "  auto dev = CreateDevice(device_attr);\n\n"
        "  global_ctx",
    ),
    # A broken nvcc, or one of another CUDA version, must not make a CPU build fail.
    Patch(
        "CMakeLists.txt",
        "check_language(CUDA)\nif(NOT CMAKE_CUDA_COMPILER)\n",
        'if("$ENV{HOROVOD_WITHOUT_CUDA}" STREQUAL "1")\n'
        '    set(CMAKE_CUDA_COMPILER "")\n'
        "else()\n"
        "    check_language(CUDA)\n"
        "endif()\n"
        'if(NOT CMAKE_CUDA_COMPILER AND NOT "$ENV{HOROVOD_WITHOUT_CUDA}" STREQUAL "1")\n',
    ),
    # Debug information takes build time and disk space.
    Patch(
        "CMakeLists.txt",
        'string(REPLACE "-O2" "-O3" CMAKE_CXX_FLAGS_RELWITHDEBINFO',
        'string(REPLACE "-O2 -g" "-O3" CMAKE_CXX_FLAGS_RELWITHDEBINFO',
    ),
    # Python 3.12 removed distutils.
    Patch(
        "horovod/torch/CMakeLists.txt",
        "from distutils.sysconfig import get_python_inc; print(get_python_inc())",
        "import sysconfig; print(sysconfig.get_path('include'))",
    ),
    Patch(
        "horovod/runner/js_run.py",
        "from distutils.spawn import find_executable",
        "from shutil import which as find_executable",
    ),
)


def patches_digest() -> str:
    """Return a digest that changes with the patches."""
    return sha256(json.dumps(PATCHES).encode()).hexdigest()


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack and patch the release in a folder; return the path of the source.

    Raises InstallError where the archive is not the known release, or a patch does not fit.
    """
    digest = sha256(archive.read_bytes()).hexdigest()
    if digest != SHA256:
        problem = f"{archive.name} is not the release of Horovod {VERSION}: its sha256 is {digest}"
        raise InstallError(problem)
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
        packed.extractall(folder)
    source = folder / f"horovod-{VERSION}"
    for patch in PATCHES:
        apply(patch, source)
    return source


def apply(patch: Patch, source: Path) -> None:
    """Apply a patch. Raises InstallError where the file does not contain its text exactly once."""
    path = source / patch.file
    text = path.read_text() if path.is_file() else ""
    if text.count(patch.before) != 1:
        line = patch.before.partition("\n")[0]
        raise InstallError(f"{patch.file} of Horovod does not contain {line!r} exactly once")
    path.write_text(text.replace(patch.before, patch.after))
